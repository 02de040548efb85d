# shellcheck shell=sh
# shellcheck disable=SC2154,SC2034,SC2164  # variables and set -e come from lib.sh and git.sh
# Make work trees, and the shadow git directory of each.

shadow() { # SHADOW BASE FORMAT EXCLUDE OBJECTS…: run this while the work tree's own configuration can still be trusted
  made=$1 base=$2 format=$3 exclude=$4
  shift 4
  mkdir -p "$made/objects/pack" "$made/objects/info" "$made/refs/muster" "$made/info"
  alternates "$made/objects" "$@"
  printf '%s\n' "$exclude" >"$made/info/exclude"
  if [ "$format" = sha256 ]; then
    printf '[extensions]\n objectFormat = sha256\n[core]\n repositoryformatversion = 1\n bare = false\n'
  else
    printf '[core]\n repositoryformatversion = 0\n bare = false\n'
  fi >"$made/config"
  git config --get-regexp '^core\.(filemode|symlinks|ignorecase|precomposeunicode|autocrlf|eol)$' >"$tmp/core" 2>/dev/null || :
  sed -n 's/^core\.\([a-z]*\) \([a-z]*\)$/ \1 = \2/p' "$tmp/core" >>"$made/config"
  if [ -n "$base" ]; then
    printf '%s\n' "$base" >"$made/refs/muster/base"
    printf '%s\n' "$base" >"$made/HEAD"
  else
    printf 'ref: refs/muster/base\n' >"$made/HEAD"
  fi
}

vacant() { # WORKDIR
  if [ -e "$1" ] && [ -n "$(ls -A "$1")" ]; then refuse "the folder $1 is not empty" "choose another work dir"; fi
  mkdir -p "$1"
}

began() { # SHADOW BASE STATE: remember the user's uncommitted work, so that a diff shows only the agent's changes
  [ "$2" != "$3" ] || return 0
  adopt "$1" "$2" "$3"
  printf '%s\n' "$3" >"$1/refs/muster/start"
}

adopt() { # GITDIR BASE STATE: copy the objects that no ref of the user's repository protects from a prune
  printf '%s\n^%s\n' "$3" "$2" | git pack-objects --revs --thin --stdout -q >"$tmp/state"
  git --git-dir="$1" index-pack --stdin --fix-thin <"$tmp/state" >/dev/null
}

# The agent's own git directory, REPO, lies outside its work dir and borrows the objects of the user's repository. It starts
# as a copy of the user's refs, settings and hooks. Nothing that the agent changes in it reaches the user's repository.
do_worktree() { # TOP COMMON GITDIR WORKDIR SHADOW REPO HOLD BRANCH BASE STATE FORMAT EXCLUDE
  top=$1 common=$2 from=$3 workdir=$4 made=$5 repo=$6 hold=$7 branch=$8 base=$9
  shift 9
  state=$1 format=$2 exclude=$3
  cd -- "$top"
  vacant "$workdir"
  free "$branch" "$base"
  undo=unmake
  # The user may delete branches and prune, so this ref protects what the agent borrows.
  again git update-ref "$hold" "$base"
  private
  [ "$base" = "$state" ] || adopt "$repo" "$base" "$state"
  printf 'gitdir: %s\n' "$repo" >"$workdir/.git"
  cd -- "$workdir"
  git update-ref -m "muster: created" "refs/heads/$branch" "$base"
  lay "$base" "$state"
  fill "$top" "$workdir"
  shadow "$made" "$base" "$format" "$exclude" "$repo/objects" "$common/objects"
  seeded "$repo"
  [ "$base" = "$state" ] || printf '%s\n' "$state" >"$made/refs/muster/start"
  undo=:
}

free() { # BRANCH BASE: refuse a branch name that `pull` could not write later
  old=$(git rev-parse -q --verify "refs/heads/$1" || :)
  if [ -n "$old" ]; then
    case $1 in muster/*) ! git merge-base --is-ancestor "$old" "$2" || return 0 ;; esac
    refuse "the branch $1 exists already" "choose another name: --branch BASE:NEW"
  fi
  # Try everything short of writing the ref.
  printf 'start\ncreate refs/heads/%s %s\nprepare\nabort\n' "$1" "$2" >"$tmp/transaction"
  if ! again rehearse 2>"$tmp/why"; then
    refuse "cannot make the branch $1: $(sed 's/^[a-z]*: //' "$tmp/why")" "choose another name"
  fi
}

rehearse() { git update-ref --stdin <"$tmp/transaction" >/dev/null; }

private() { # make $repo, the agent's git directory, from the user's $common; $from is the git directory of the user's work tree
  mkdir -p "$repo/objects/pack" "$repo/objects/info" "$repo/refs/heads" "$repo/refs/tags" "$repo/info" "$repo/hooks"
  printf 'ref: refs/heads/%s\n' "$branch" >"$repo/HEAD"
  alternates "$repo/objects" "$common/objects"
  {
    if [ "$format" = sha256 ]; then
      printf '[core]\n\trepositoryformatversion = 1\n\tbare = false\n[extensions]\n\tobjectFormat = sha256\n'
    else
      printf '[core]\n\trepositoryformatversion = 0\n\tbare = false\n'
    fi
    settings "$common/config"
    if [ "$from" != "$common" ] || [ -f "$common/config.worktree" ]; then settings "$from/config.worktree"; fi
    if [ -d "$common/lfs" ]; then printf '[lfs]\n\tstorage = %s\n' "$(quoted "$common/lfs")"; fi
  } >"$repo/config"
  for file in info/exclude info/attributes shallow; do
    [ ! -f "$common/$file" ] || cp -- "$common/$file" "$repo/$file"
  done
  [ ! -f "$from/info/sparse-checkout" ] || cp -- "$from/info/sparse-checkout" "$repo/info/"
  for file in "$common"/hooks/*; do
    case $file in *.sample) continue ;; esac
    [ ! -f "$file" ] || cp -p -- "$file" "$repo/hooks/"
  done
  # Copy branches, tags and remote branches, but not those of other agents.
  git for-each-ref --format='%(objectname) %(refname) %(symref)' refs/heads refs/tags refs/remotes >"$tmp/refs"
  : >"$tmp/symbolic"
  symbolic=$tmp/symbolic awk '
    NF == 2 { if ($2 !~ /^refs\/heads\/muster\//) print $1, $2; next }
    $2 ~ /^refs\/remotes\// && $3 ~ /^refs\/remotes\// { print $2, $3 >ENVIRON["symbolic"] }' "$tmp/refs" >"$repo/packed-refs"
  while read -r name target; do git --git-dir="$repo" symbolic-ref "$name" "$target"; done <"$tmp/symbolic"
}

seeded() { # GITDIR: remember hooks and settings, so that later ones count as the agent's
  cp -- "$1/config" "$made/config.seed"
  (cd -- "$1" && cksum hooks/* 2>/dev/null) >"$made/hooks.seed" || :
}

quoted() { printf '"%s"' "$(printf %s "$1" | sed -e 's/[\\"]/\\&/g')"; }

settings() { # FILE: copy the user's settings, except those that describe the repository itself
  [ -f "$1" ] || return 0
  LC_ALL=C awk -v near="${1%/*}/" '
    /^[ \t]*\[/ { section = tolower($0); sub(/^[ \t]*\[[ \t]*/, "", section); sub(/[] \t".].*/, "", section) }
    section == "extensions" { next }
    section == "core" && tolower($0) ~ /^[ \t]*(\[core\])?[ \t]*(bare|worktree|repositoryformatversion)[ \t]*=/ { next }
    # A path is relative to the file that contains it.
    section ~ /^include/ && tolower($0) ~ /^[ \t]*path[ \t]*=[ \t]*"?[^"\/~ \t]/ { sub(/=[ \t]*"?/, "&" near) }
    { print }
  ' "$1"
}

unmake() {
  rm -rf "$workdir" "$repo" "$made"
  git --git-dir="$common" update-ref -d "$hold" || :
}

# An agent may have written .gitmodules. So only paths that are submodules on both sides are filled, under the only name for that
# path, and only from the user's own copy.
fill() { # FROM TO [DEPTH]: fill submodules from the copies that are checked out in FROM
  if [ ! -f "$2/.gitmodules" ] || [ -h "$2/.gitmodules" ]; then return 0; fi
  git config -f "$2/.gitmodules" --name-only --get-regexp '^submodule\..*\.path$' >"$tmp/modules${3-}" || :
  while IFS= read -r key; do
    name=${key#submodule.}
    name=${name%.path}
    path=$(git config -f "$2/.gitmodules" "$key")
    case /$path/ in */../* | //*) continue ;; esac
    if [ ! -e "$1/$path/.git" ] || ! is_submodule "$1" "$path" || ! is_submodule "$2" "$path"; then continue; fi
    [ "$(git config -f "$2/.gitmodules" -z --get-regexp '^submodule\..*\.path$' | tr '\n\0' '\001\n' | awk -F '\001' '{ print $2 }' |
      grep -cxF -e "$path")" = 1 ] || continue
    (
      from=$(git -C "$1/$path" rev-parse --absolute-git-dir)
      at=$(git -C "$1/$path" rev-parse HEAD)
      url=$(git -C "$1/$path" config remote.origin.url || :)
      # Pass settings as variables, because on a command line a name that contains "=" would end there.
      export GIT_ALLOW_PROTOCOL=file GIT_CONFIG_COUNT=9 GIT_CONFIG_KEY_7="submodule.$name.url" GIT_CONFIG_VALUE_7="$from" \
        GIT_CONFIG_KEY_8="submodule.$name.update" GIT_CONFIG_VALUE_8=checkout
      git -C "$2" submodule --quiet update --init -- "$path"
      export GIT_CONFIG_COUNT=7
      git -C "$2/$path" checkout -q --detach "$at"
      [ -z "$url" ] || git -C "$2/$path" config remote.origin.url "$url"
      fill "$1/$path" "$2/$path" "${3-}+"
    ) >&2 </dev/null
  done <"$tmp/modules${3-}"
}

is_submodule() { # TOP PATH
  case $(GIT_LITERAL_PATHSPECS=1 git -C "$1" ls-files -s -- "$2") in 160000\ *) ;; *) return 1 ;; esac
  [ ! -h "$1/$2" ]
}

# Print commits that a pack may build on, and those of WANTS (separated by blanks) that exist. @KEY is the host's cache of one
# origin. A new cache starts with the objects of the user's repository COMMON if that is on the same machine.
do_haves() { # GITDIR|@KEY WANTS OBJECTS FORMAT [COMMON]
  from=$1 want=$2
  if is_shadow "$from"; then unlinked "$from"; fi
  case $from in
  @*)
    from=$mu_home/repos/${from#@}.git
    if [ ! -e "$from/ready" ]; then
      mkdir -p "$mu_home/repos"
      if [ -z "${5-}" ] || ! borrow "$5" "$from" "$4"; then
        want='' # without the borrowed objects, an existing commit may lack its ancestors
        again git init -q --bare --template= --object-format="$4" -- "$from"
        : >"$from/ready"
      fi
    else
      want=
    fi
    set -- refs/muster/have
    ;;
  *) if [ -n "$3" ]; then export GIT_OBJECT_DIRECTORY="$3" && set -- refs/muster/base; else set --; fi ;;
  esac
  sealed
  export GIT_DIR="$from"
  for rev in $want; do
    if git cat-file -e "$rev^{commit}" 2>/dev/null; then printf '%s\n' "$rev"; fi
  done
  git rev-parse -q --verify HEAD || :
  git for-each-ref --sort=-creatordate --count=200 --format='%(objectname)' "$@"
}

# Objects never change, so they are hard-linked, or copied where links are impossible. Fails if COMMON borrows objects itself,
# or if files vanish meanwhile because the user repacks.
borrow() { # COMMON CACHE FORMAT
  [ ! -e "$1/objects/info/alternates" ] && [ ! -e "$1/shallow" ] || return 1
  new=$2.$$.${tmp##*/}
  if git init -q --bare --template= --object-format="$3" -- "$new" && linked "$1/objects" "$new/objects" 2>/dev/null; then
    : >"$new/ready"
    # If a parallel create was faster, mv would move this one into the existing folder.
    if [ ! -e "$2" ] && mv -- "$new" "$2" && [ ! -e "$2/${new##*/}" ]; then return 0; fi
    rm -rf "${2:?}/${new##*/}"
  fi
  rm -rf "$new"
  return 1
}

linked() { # OBJECTS TO: link the index of a pack last, because git takes it as proof of a complete pack
  for part in "$1"/[0-9a-f][0-9a-f] "$1"/pack/pack-*.pack "$1"/pack/pack-*.idx; do
    [ -e "$part" ] || continue
    to=$2
    case $part in */pack/*) to=$2/pack ;; esac
    cp -rl -- "$part" "$to/" || cp -rp -- "$part" "$to/" || return 1
  done
}

# Run COMMAND with FILE as its input. End it when our stdin closes, because then the reader of its output is gone.
while_wanted() { # FILE COMMAND…
  given=$1
  shift
  exec 3<&0
  "$@" <"$given" 3<&- &
  packer=$!
  { cat && kill "$packer"; } <&3 >/dev/null 3<&- &
  watcher=$!
  code=0
  wait "$packer" || code=$?
  kill "$watcher" || :
  return "$code"
}

do_pack() { # send|explain GITDIR WANT… ^HAVE…
  wanted=$1
  if [ "$1" = send ]; then exec 2>/dev/null; else exec >/dev/null; fi
  sealed
  if is_shadow "$2"; then unlinked "$2"; fi
  export GIT_DIR="$2"
  shift 2
  for rev; do case $rev in ^*) printf '%s\n' "${rev#^}" ;; esac; done >"$tmp/haves"
  for rev; do case $rev in ^*) ;; *) printf '%s\n' "$rev" ;; esac; done >"$tmp/revs"
  git cat-file --batch-check='^%(objectname) %(objecttype)' <"$tmp/haves" >"$tmp/known"
  sed -n 's/ commit$//p' "$tmp/known" >>"$tmp/revs"
  # Searching for deltas pays off for a few new commits. For a whole history it takes minutes, so objects are sent as they are.
  window=10
  if [ ! -s "$tmp/haves" ] || [ "$(git rev-list --count --max-count=500 --stdin <"$tmp/revs")" = 500 ]; then window=0; fi
  set -- git -c core.bigFileThreshold=1m pack-objects --revs --thin --stdout -q --delta-base-offset --window="$window"
  if [ "$wanted" = send ]; then while_wanted "$tmp/revs" "$@"; else "$@" <"$tmp/revs"; fi
}

# Send a whole history of the user's own repository to `receive`. Packs of which everything is wanted are sent with their indexes,
# so that the receiver need not index them again. All other objects come in one more pack.
do_history() { # send|explain GITDIR WANT…
  if [ "$1" = explain ]; then
    do_pack "$@"
    return
  fi
  exec 2>/dev/null
  sealed
  export GIT_DIR="$2"
  shift 2
  git rev-list --objects --no-object-names "$@" >"$tmp/objects"
  sort -u "$tmp/objects" >"$tmp/wanted"
  : >"$tmp/whole"
  : >"$tmp/names"
  format=$(git rev-parse --show-object-format)
  for idx in "$GIT_DIR"/objects/pack/pack-*.idx; do
    name=${idx##*/}
    name=${name%.idx}
    [ -f "$GIT_DIR/objects/pack/$name.pack" ] || continue
    git show-index --object-format="$format" <"$idx" >"$tmp/index"
    cut -d ' ' -f 2 <"$tmp/index" | sort >"$tmp/there"
    [ -z "$(comm -23 "$tmp/there" "$tmp/wanted" | head -n 1)" ] || continue
    cat "$tmp/there" >>"$tmp/whole"
    printf '%s.pack\n%s.idx\n' "$name" "$name" >>"$tmp/names"
  done
  if [ ! -s "$tmp/names" ]; then
    printf 'pack\n'
    printf '%s\n' "$@" >"$tmp/revs"
    while_wanted "$tmp/revs" git pack-objects --revs --stdout -q --delta-base-offset --window=0
    return
  fi
  sort -u "$tmp/whole" >"$tmp/there"
  comm -13 "$tmp/there" "$tmp/wanted" >"$tmp/rest"
  : >"$tmp/names.rest"
  if [ -s "$tmp/rest" ]; then
    while_wanted "$tmp/rest" git pack-objects -q --delta-base-offset --window=0 "$tmp/pack" >"$tmp/name"
    name=pack-$(cat "$tmp/name")
    printf '%s.pack\n%s.idx\n' "$name" "$name" >"$tmp/names.rest"
  fi
  printf 'end\n' >>"$tmp/names.rest"
  : >"$tmp/end"
  printf 'files\n'
  export COPYFILE_DISABLE=1
  while_wanted /dev/null tar -chf - -C "$GIT_DIR/objects/pack" -T "$tmp/names" -C "$tmp" -T "$tmp/names.rest"
}

receive() { # CACHE: read what `history` sends
  IFS= read -r kind || kind=
  case $kind in
  pack) git --git-dir="$1" index-pack --stdin >/dev/null ;;
  files)
    # Unpack beside the target and move files there at the end, the index of a pack last, because it proves a complete pack.
    incoming=$1/objects/pack/.incoming.$$.${tmp##*/}
    find "$1/objects/pack" -maxdepth 1 -name '.incoming.*' -mmin +1440 -exec rm -rf {} + # left by a killed transfer
    mkdir "$incoming"
    tar -xof - -C "$incoming" && [ -f "$incoming/end" ] || die 1 "the history did not arrive whole; try again"
    for part in "$incoming"/pack-*.pack "$incoming"/pack-*.idx; do mv -f -- "$part" "$1/objects/pack/"; done
    rm -rf "$incoming"
    ;;
  *) die 1 "the history did not arrive" ;;
  esac
}

do_mirror() { # PACK KEY WORKDIR SHADOW BRANCH BASE STATE FORMAT EXCLUDE NAME EMAIL SHALLOW; on stdin a pack if PACK, or what `history` sends
  pack=$1 cache=$mu_home/repos/$2.git workdir=$3 made=$4 branch=$5 base=$6 state=$7 format=$8 exclude=$9
  shift 9
  vacant "$workdir"
  undo=unmirror
  case $pack in
  '') ;;
  history) receive "$cache" ;;
  *) git --git-dir="$cache" index-pack --stdin --fix-thin >/dev/null ;;
  esac
  kind=${3:+shallow} # later packs cannot build on a shallow history
  for rev in "$base" "$state"; do
    if ! git --git-dir="$cache" rev-parse -q --verify "refs/muster/${kind:-have}/$rev" >/dev/null; then
      again git --git-dir="$cache" update-ref "refs/muster/${kind:-have}/$rev" "$rev"
    fi
  done
  init_mirror "$workdir" "$cache" "$branch" "$format"
  cd -- "$workdir"
  mkdir -p .git/info
  printf '%s\n' "$exclude" >.git/info/exclude
  [ -z "$3" ] || printf '%s\n' "$3" >.git/shallow
  [ -z "$1" ] || git config user.name "$1"
  [ -z "$2" ] || git config user.email "$2"
  git update-ref -m "muster: created" "refs/heads/$branch" "$base"
  lay "$base" "$state"
  shadow "$made" "$base" "$format" "$exclude" "$workdir/.git/objects" "$cache/objects"
  began "$made" "$base" "$state"
  [ -z "$3" ] || printf '%s\n' "$3" >"$made/shallow"
  seeded .git
  printf %s "$cache" >"$made/cache"
  undo=:
}

unmirror() { rm -rf "$workdir" "$made" "${incoming-}"; }

do_shadow() { # WORKDIR SHADOW GITDIR COMMON FORMAT EXCLUDE: make a shadow for a work tree that stays as it is
  cd -- "$1"
  head=$(git --git-dir="$3" rev-parse -q --verify HEAD) || refuse "the repository has no commit yet" "commit once"
  shadow "$2" "$head" "$5" "$6" "$4/objects"
}

do_baseline() { # WORKDIR SHADOW: commit everything in the folder except .git as the shadow's first commit
  sealed
  cd -- "$1"
  shadow "$2" "" sha1 ""
  export GIT_DIR="$2" GIT_WORK_TREE="$1" GIT_INDEX_FILE="$2/index"
  find . -name .git -prune -o \( -type f -o -type l \) -print0 >"$tmp/list"
  git update-index --add -z --stdin <"$tmp/list"
  tree=$(git write-tree)
  base=$(as_muster git commit-tree "$tree" -m baseline)
  git update-ref HEAD "$base"
}

verb "$@"
