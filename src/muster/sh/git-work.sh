# shellcheck shell=sh
# shellcheck disable=SC2154,SC2034,SC2164  # variables and set -e come from lib.sh and git.sh
# The work of agents: diff, count, fetch, push and integrate.

do_diff() { # WORKDIR GITDIR SHADOW BRANCH COMMITTED OPTION…
  enter "$1" "$2" "$3" "$4"
  state=$head from=refs/muster/base
  if [ -z "$5$gone" ]; then
    take lenient
    [ ! -f "$shadow/refs/muster/start" ] || from=refs/muster/start
  fi
  shift 5
  git diff --no-ext-diff --no-textconv --ignore-submodules=dirty "$@" "$from" "$state" --
}

tell() { # NUMBER WORKDIR GITDIR SHADOW BRANCH: print `NUMBER AHEAD DIRTY HEAD`; DIRTY is - if the work dir is gone
  number=$1
  shift
  tmp=$tmp/$number
  if ! quickly "$@"; then
    [ -d "$tmp" ] || mkdir "$tmp"
    enter "$@"
    dirty=-
    [ -n "$gone" ] || dirty
  fi
  ahead=0
  IFS= read -r base <"$shadow/refs/muster/base"
  [ "$head" = "$base" ] || ahead=$(git rev-list --count "$base..$head")
  printf '%s %s %s %s\n' "$number" "$ahead" "$dirty" "$head"
}

dirty() { # set dirty to the number of changed files
  # git quotes names with newlines, so one line is one file.
  git status --porcelain=v2 --no-renames --untracked-files=all --ignore-submodules=dirty >"$tmp.raw" || return
  dirty=0
  [ ! -s "$tmp.raw" ] || dirty=$(($(wc -l <"$tmp.raw")))
}

# Do what `enter` and `dirty` do in one process if nothing has changed; fail otherwise. The index is read in place, because git does
# not write it with GIT_OPTIONAL_LOCKS=0. If nothing differs from HEAD, the index is sound.
quickly() { # WORKDIR GITDIR SHADOW BRANCH
  [ "$checked" = none ] && [ -n "$2" ] && [ -d "$1" ] && [ ! -L "$1" ] && [ -d "$2" ] && [ ! -L "$2" ] || return
  [ -f "$2/index" ] && [ ! -L "$2/index" ] && [ -f "$2/HEAD" ] && [ ! -L "$2/HEAD" ] && [ ! -e "$2/commondir" ] || return
  for part in "$2"/sharedindex.*; do [ ! -e "$part" ] || return; done
  { IFS= read -r head <"$2/HEAD"; } 2>/dev/null || return
  case $head in
  "ref: refs/heads/"*)
    case $head in *..*) return 1 ;; esac
    part=$2/${head#ref: }
    # git looks up packed refs.
    [ -f "$part" ] && [ ! -L "$part" ] && { IFS= read -r head <"$part"; } 2>/dev/null || return
    ;;
  esac
  case $head in *[!0-9a-f]*) return 1 ;; esac
  case ${#head} in 40 | 64) ;; *) return 1 ;; esac
  sealed
  shadow=$3
  { IFS= read -r part <"$shadow/HEAD"; } 2>/dev/null && [ "$part" = "$head" ] || return
  cd -- "$1"
  export GIT_DIR="$shadow" GIT_WORK_TREE="$1" GIT_INDEX_FILE="$2/index"
  dirty || return
  [ "$dirty" = 0 ] || { mkdir "$tmp" && sound; }
}

do_info() { # read four lines per agent from stdin, with newlines and backslashes escaped
  number=0
  set --
  while IFS= read -r one && IFS= read -r two && IFS= read -r three && IFS= read -r four; do
    case $one$two$three in
    *\\*)
      one=$(printf '%b.' "$one") two=$(printf '%b.' "$two") three=$(printf '%b.' "$three")
      one=${one%.} two=${two%.} three=${three%.}
      ;;
    esac
    set -- "$@" "$one" "$two" "$three" "$four"
    if [ $# -ge 32 ]; then
      tell_all "$@"
      set --
    fi
  done
  [ $# = 0 ] || tell_all "$@"
  cat "$tmp"/told.* 2>/dev/null || :
}

tell_all() { # WORKDIR GITDIR SHADOW BRANCH…: a few agents at once; what can be done for all of them takes one process
  at=0
  : >"$tmp/gits"
  for word; do
    case $((at % 4)),$word in
    *, | 3,*) ;;
    0,*) printf '%s\0' "$word" ;;
    1,*) printf '%s\0' "$word" && printf '%s\0' "$word" >>"$tmp/gits" ;;
    2,*) printf '%s\0' "$word" >>"$tmp/gits" ;;
    esac
    at=$((at + 1))
  done >"$tmp/list"
  # Read refs with the shell, but only from plain files: a pipe would block.
  # shellcheck disable=SC2016  # expanded by the inner shell
  checked=$(xargs -0 sh -c 'find "$@" \( -type p -o -size +8 \( -name HEAD -o -path "*/refs/heads/*" \) \) 2>/dev/null | head -n 1' find <"$tmp/list") || :
  # shellcheck disable=SC2016
  checked=$checked$(xargs -0 sh -c 'find "$@" ! -path "*/hooks/*" ! -name index -type l 2>/dev/null | head -n 1' find <"$tmp/gits") || :
  [ -n "$checked" ] || checked=none
  while [ $# -gt 0 ]; do
    tell "$number" "$1" "$2" "$3" "$4" >"$tmp/told.$number" 2>/dev/null &
    number=$((number + 1))
    shift 4
  done
  wait
}

do_uncommitted() { # WORKDIR GITDIR SHADOW BRANCH: print `XY PATH` for each changed or new file, each followed by NUL
  enter "$1" "$2" "$3" "$4"
  [ -n "$gone" ] || git status --porcelain -z --no-renames --untracked-files=all --ignore-submodules=dirty
}

# Print hooks, and settings that make git run programs, which the agent added to its git directory.
planted() {
  [ -f "$shadow/config.seed" ] || return 0 # this is the user's own repository
  (cd -- "$gitdir" && find hooks -type f -exec cksum {} + 2>/dev/null) | grep -vxF -f "$shadow/hooks.seed" | sed 's/^[0-9]* [0-9]* //' | head -n 20
  git config --file "$shadow/config.seed" --no-includes --list >"$tmp/settings" 2>/dev/null || :
  git config --file "$gitdir/config" --no-includes --list 2>/dev/null | grep -vxF -f "$tmp/settings" | sed 's/=.*//' |
    grep -E '^(core\.(fsmonitor|hookspath|sshcommand|pager|editor|askpass|alternaterefscommand|gitproxy|worktree)|alias\.|filter\.|credential\.|gpg\.|include(if)?\.|url\.|pager\.|sequence\.|diff\.(external|.*\.(command|textconv))$|(difftool|mergetool)\.|merge\..*\.driver$|uploadpack\.packobjectshook$|remote\..*\.(uploadpack|receivepack|vcs)$|submodule\..*\.update$)' |
    sort -u | head -n 20
}

# Print `TIP HEAD`, where TIP may be a commit of uncommitted work, and then a line for each thing that `planted` finds.
do_tip() { # WORKDIR GITDIR SHADOW BRANCH UNCOMMITTED
  enter "$1" "$2" "$3" "$4"
  tip=$head
  if [ -n "$2" ] && [ -n "$4" ]; then tip=$(git --git-dir="$2" rev-parse -q --verify "refs/heads/$4" || printf %s "$head"); fi
  if [ -n "$5" ]; then
    take lenient
    tip=$head
    tree=$(git rev-parse "$state^{tree}")
    if [ "$tree" != "$(git rev-parse "$head^{tree}")" ]; then
      tip=$(as_muster git commit-tree "$tree" -p "$head" -m "uncommitted work${4:+ of $4}")
    fi
  fi
  printf '%s %s\n' "$tip" "$head"
  planted || : # grep found none
}

do_land() { # PACK COMMON REF TIP FORCE BASE: prints what REF was; a pack on stdin if PACK. A new REF is not made for BASE
  sealed
  pack=$1 ref=$3 tip=$4
  export GIT_DIR="$2"
  [ -z "$pack" ] || git index-pack --stdin --fix-thin --strict >/dev/null
  git cat-file -e "$tip^{commit}"
  [ -n "$ref" ] || return 0
  old=$(git rev-parse -q --verify "$ref" || :)
  printf '%s\n' "$old"
  if [ "$old" = "$tip" ] || [ "${old:-$6}" = "$tip" ]; then return 0; fi
  if [ -n "$old" ]; then
    again git worktree list --porcelain >"$tmp/trees"
    if grep -qxF "branch $ref" "$tmp/trees"; then
      refuse "${ref#refs/heads/} is checked out" "check out another branch there first"
    fi
    if [ -z "$5" ] && ! git merge-base --is-ancestor "$old" "$tip"; then
      refuse "${ref#refs/heads/} has commits the agent does not have" "use --force to replace them (they stay in the reflog)"
    fi
  fi
  again git update-ref --create-reflog -m "muster: pull" "$ref" "$tip" "$old"
}

melt() { # OURS THEIRS WHERE: compute the merged tree without touching a work tree
  code=0
  git merge-tree --write-tree --name-only --no-messages -z "$1" "$2" >"$tmp/merge" || code=$?
  if [ "$code" = 1 ]; then
    tr '\n\0' '?\n' <"$tmp/merge" | sed 1d | tr '\n' '\0' >"$tmp/list" # the first line is the tree
    refuse "conflicts in $(names "$tmp/list" 10)" "$3"
  fi
  [ "$code" = 0 ] || die "$code" "git merge-tree failed (it needs git 2.38)"
  tr '\0' '\n' <"$tmp/merge" | head -n 1
}

move_to() { # OLD NEW WHOSE: move work tree and index, keeping uncommitted changes, or refuse
  git update-index -q --refresh >/dev/null 2>&1 || :
  if ! git read-tree -m -u "$1" "$2" 2>"$tmp/err"; then
    if [ -e "${GIT_INDEX_FILE:-$(git rev-parse --git-path index)}.lock" ]; then refuse "git is at work there ($(head -n 1 "$tmp/err"))" "try again"; fi
    refuse "that would overwrite uncommitted work: $(sed -n "s/^error: //p;s/^fatal: //p" "$tmp/err" | head -n 3 | paste -s -d ' ' -)" "$3"
  fi
}

do_advance() { # PACK WORKDIR GITDIR COMMON SHADOW COMMIT MERGE: print the new HEAD
  pack=$1 common=$4 commit=$6 merge=$7
  enter "$2" "$3" "$5"
  idle "$gitdir" "let the agent finish it"
  export GIT_OBJECT_DIRECTORY="$common/objects"
  [ -z "$pack" ] || git index-pack --stdin --fix-thin >/dev/null
  if git merge-base --is-ancestor "$head" "$commit"; then
    new=$commit
  elif git merge-base --is-ancestor "$commit" "$head"; then
    new=$head
  else
    [ -n "$merge" ] || refuse "the agent has commits of its own" "use --merge"
    tree=$(melt "$head" "$commit" "pull and merge on your side, then push")
    new=$(as_muster git commit-tree "$tree" -p "$head" -p "$commit" -m "Merge pushed commits")
  fi
  if [ "$new" != "$head" ]; then
    [ -z "$damaged" ] || refuse "its index cannot be read ($index)" "let the agent remove it and run: git reset"
    export GIT_INDEX_FILE="$index"
    move_to "$head" "$new" "let the agent commit first"
    git --git-dir="$gitdir" update-ref -m "muster: push" HEAD "$new" "$head"
  fi
  printf '%s\n' "$commit" >"$shadow/refs/muster/base.$$"
  mv -f "$shadow/refs/muster/base.$$" "$shadow/refs/muster/base"
  rm -f "$shadow/refs/muster/start"
  printf '%s\n' "$new"
}

do_integrate() { # TOP REF HOW MESSAGE: integrate into the user's checked-out branch; print HEAD before and after
  cd -- "$1"
  how=$3
  idle "$(git rev-parse --absolute-git-dir)" "commit or abort it first"
  head=$(git rev-parse -q --verify HEAD) || refuse "the repository has no commit yet" "commit once"
  theirs=$(git rev-parse -q --verify "$2^{commit}") || die 3 "there is no $2"
  message=${4:-Merge ${2#refs/heads/}}
  if git merge-base --is-ancestor "$theirs" "$head"; then
    new=$head
  elif [ "$how" != squash ] && git merge-base --is-ancestor "$head" "$theirs"; then
    new=$theirs
  elif [ "$how" = rebase ]; then
    replay
  else
    tree=$(melt "$head" "$theirs" "nothing was changed; merge by hand: git merge ${2#refs/heads/}")
    new=$head
    if [ "$how" = merge ]; then
      new=$(git commit-tree "$tree" -p "$head" -p "$theirs" -m "$message")
    elif [ "$tree" != "$(git rev-parse "$head^{tree}")" ]; then
      new=$(git commit-tree "$tree" -p "$head" -m "$message")
    fi
  fi
  if [ "$new" != "$head" ]; then
    move_to "$head" "$new" "commit or stash it first"
    git update-ref -m "muster: $how ${2#refs/heads/}" HEAD "$new" "$head"
  fi
  printf '%s %s\n' "$head" "$new"
}

replay() { # apply their commits one by one on top of head; set new
  new=$head
  git rev-list --reverse --topo-order --no-merges "$head..$theirs" >"$tmp/picks"
  while read -r pick; do
    parent=$(git rev-parse -q --verify "$pick^^{tree}" || git hash-object -t tree /dev/null)
    # merge-tree has --merge-base since git 2.40; before, three throw-away commits have the same effect
    root=$(as_muster git commit-tree "$parent" -m base)
    ours=$(as_muster git commit-tree "$new^{tree}" -p "$root" -m ours)
    mine=$(as_muster git commit-tree "$pick^{tree}" -p "$root" -m theirs)
    tree=$(melt "$ours" "$mine" "nothing was changed; use --merge, or rebase by hand")
    [ "$tree" != "$(git rev-parse "$new^{tree}")" ] || continue
    git log -1 --format=%B "$pick" >"$tmp/message"
    new=$(
      GIT_AUTHOR_NAME=$(git log -1 --format=%an "$pick") GIT_AUTHOR_EMAIL=$(git log -1 --format=%ae "$pick")
      GIT_AUTHOR_DATE=@$(git log -1 --format=%ad --date=raw "$pick")
      export GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_AUTHOR_DATE
      git commit-tree "$tree" -p "$new" -F "$tmp/message"
    )
  done <"$tmp/picks"
}

do_rename() { # GITDIR OLD NEW: a missing OLD was renamed before, by muster or by the agent
  sealed
  export GIT_DIR="$1"
  git rev-parse -q --verify "refs/heads/$2" >/dev/null || return 0
  if git rev-parse -q --verify "refs/heads/$3" >/dev/null; then refuse "the branch $3 exists already" "choose another name"; fi
  again git branch -m -- "$2" "$3"
}

do_patch() { # FOLDER: apply the patch on stdin to a folder, which need not be a repository; print the changed paths
  cat >"$tmp/patch"
  cd -- "$1"
  export GIT_DIR="$tmp/none" # git must not find a repository around the folder
  git apply --check "$tmp/patch" 2>"$tmp/err" ||
    refuse "the changes do not fit the folder: $(sed -n 's/^error: //p' "$tmp/err" | head -n 3 | paste -s -d ' ' -)" "look at them with muster diff"
  git apply --numstat -z "$tmp/patch"
  git apply --whitespace=nowarn "$tmp/patch"
}

verb "$@"
