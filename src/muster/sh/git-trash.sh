# shellcheck shell=sh
# shellcheck disable=SC2154,SC2034,SC2164  # variables and set -e come from lib.sh and git.sh
# A worktree put away whole, and brought back. Every step looks whether it was done: a killed run is finished by the next.

move() { # FROM TO NOTE PLACE: one of both is in the trash, PLACE is a folder near the other
  if [ -e "$3" ]; then # a copy to another file system was under way
    if [ -e "$2" ]; then rm -rf "$1"; else rm -rf "$2.part"; fi
  fi
  if [ -e "$1" ] || [ -L "$1" ]; then
    [ ! -e "$2" ] || refuse "$2 is in the way" "move it elsewhere first"
    mkdir -p "$(dirname -- "$2")"
    if same_device "$4"; then
      mv -- "$1" "$2" # a rename: there or not
    else
      : >"$3"
      cp -Rp -- "$1" "$2.part"
      mv -- "$2.part" "$2"
      rm -rf "$1"
    fi
  fi
  rm -f "$3"
}

same_device() { # FOLDER: is the trash on its file system? Only a link tells in a portable way
  rm -f "$trash/probe" "$1/.muster-probe"
  : >"$trash/probe"
  code=0
  ln "$trash/probe" "$1/.muster-probe" 2>/dev/null || code=$?
  rm -f "$trash/probe" "$1/.muster-probe"
  return "$code"
}

do_park() { # COMMON GITDIR WORKDIR BRANCH TRASH ID
  common=$1 gitdir=$2 workdir=$3 branch=$4 trash=$5 id=$6
  near=$(dirname -- "$workdir")
  sealed
  [ ! -e "$trash/parked" ] || return 0
  mkdir -p "$trash"
  case $gitdir in
  */worktrees/*)
    export GIT_DIR="$common"
    if [ ! -e "$trash/kept" ] && { [ -d "$gitdir" ] || git rev-parse -q --verify "refs/heads/$branch" >/dev/null; }; then
      rm -f "$trash/name"
      hold "$gitdir" "$branch" "refs/muster/trash/$id"
      if [ -d "$gitdir" ] || ! checked_out "$branch"; then git rev-parse -q --verify "refs/heads/$branch" >"$trash/tip" || :; fi
      if [ -f "$common/logs/refs/heads/$branch" ]; then cp -p "$common/logs/refs/heads/$branch" "$trash/reflog"; fi
      : >"$trash/kept"
    fi
    move "$gitdir" "$trash/admin" "$trash/admin-in" "$common" # first: git prunes a work tree whose folder is gone
    move "$workdir" "$trash/work" "$trash/work-in" "$near"
    tip=$(cat "$trash/tip" 2>/dev/null || :)
    if [ -n "$tip" ] && [ "$(git rev-parse -q --verify "refs/heads/$branch" || :)" = "$tip" ]; then
      again git update-ref -d "refs/heads/$branch" "$tip"
    fi
    ;;
  *) move "$workdir" "$trash/work" "$trash/work-in" "$near" ;;
  esac
  : >"$trash/parked"
}

checked_out() { # BRANCH: somebody else may have it, once git has forgotten the agent's work tree
  again git worktree list --porcelain >"$tmp/trees" || return 0
  grep -qxF "branch refs/heads/$1" "$tmp/trees"
}

hold() { # GITDIR BRANCH REF: REF reaches all that the work tree's HEAD, index, branch and reflog name
  copied "$1/index" || rm -f "$tmp/index"
  export GIT_INDEX_FILE="$tmp/index"
  own=$GIT_DIR
  [ ! -d "$1" ] || own=$1 # a split index has its other part there
  if ! tree=$(git --git-dir="$own" write-tree 2>/dev/null); then # unmerged or damaged: any tree that names all its blobs that there are
    git --git-dir="$own" ls-files -s >"$tmp/entries" 2>/dev/null || : >"$tmp/entries"
    awk '$1 != "160000" { print $2 }' "$tmp/entries" | sort -u >"$tmp/staged"
    git cat-file --batch-check='%(objectname) %(objecttype)' <"$tmp/staged" >"$tmp/types"
    sed -n "s/^\([0-9a-f]*\) blob$/100644 blob \1	\1/p" "$tmp/types" >"$tmp/blobs"
    tree=$(git mktree <"$tmp/blobs")
  fi
  unset GIT_INDEX_FILE
  {
    git rev-parse -q --verify "refs/heads/$2" || :
    if [ -d "$1" ]; then
      for name in HEAD ORIG_HEAD MERGE_HEAD CHERRY_PICK_HEAD REVERT_HEAD; do
        git --git-dir="$1" rev-parse -q --verify "$name" || :
      done
    fi
    cut -d ' ' -f 2 "$1/logs/HEAD" 2>/dev/null | sort -u || :
  } >"$tmp/names"
  git cat-file --batch-check='%(objectname) %(objecttype)' <"$tmp/names" >"$tmp/types"
  ref=$3
  set --
  # shellcheck disable=SC2013  # names of commits hold no spaces
  for parent in $(sed -n 's/ commit$//p' "$tmp/types" | awk '!seen[$0]++'); do set -- "$@" -p "$parent"; done
  kept=$(as_muster git commit-tree "$tree" "$@" -m "kept by muster")
  again git update-ref "$ref" "$kept"
}

do_unpark() { # COMMON GITDIR WORKDIR BRANCH TRASH ID NEW: its branch is called NEW; prints the git dir, which may have a new name
  common=$1 gitdir=$2 workdir=$3 branch=$4 trash=$5 id=$6 new=$7
  near=$(dirname -- "$workdir")
  sealed
  if [ ! -e "$trash/unparking" ]; then
    if [ ! -e "$trash/parked" ] && [ ! -e "$trash/kept" ] && [ ! -e "$trash/work" ]; then # it is back
      if [ -s "$trash/name" ]; then gitdir=$common/worktrees/$(cat "$trash/name"); fi
      [ -e "$workdir" ] || [ -s "$trash/name" ] || die 3 "nothing is parked in $trash"
      printf %s "$gitdir"
      return
    fi
    do_park "$@" # to the end, if it was killed
    [ ! -e "$workdir" ] || refuse "$workdir is in the way" "move it elsewhere first"
  fi
  was=$branch branch=$new
  export GIT_DIR="$common"
  tip=$(cat "$trash/tip" 2>/dev/null || :)
  now=$(git rev-parse -q --verify "refs/heads/$branch" 2>/dev/null || :)
  if [ -n "$tip" ] && [ -n "$now" ] && [ "$now" != "$tip" ]; then
    refuse "the branch $branch exists again, at another commit" "rename it first: git branch -m -- $branch NEW"
  fi
  if [ -e "$trash/parked" ]; then mv -f "$trash/parked" "$trash/unparking"; fi
  move "$trash/work" "$workdir" "$trash/work-out" "$near"
  case $gitdir in */worktrees/*) rejoin ;; esac
  rm -f "$trash/unparking"
  printf %s "$gitdir"
}

rejoin() { # the work tree and its repository
  if [ -n "$tip" ] && [ -z "$now" ]; then again git update-ref "refs/heads/$branch" "$tip" ""; fi
  mkdir -p "$(dirname -- "$common/logs/refs/heads/$branch")"
  if [ -f "$trash/reflog" ]; then cp -p "$trash/reflog" "$common/logs/refs/heads/$branch"; fi
  old=${gitdir##*/} number=0
  if [ ! -s "$trash/name" ]; then # the name may be another work tree's by now
    while [ -e "$gitdir" ]; do
      number=$((number + 1))
      gitdir=$common/worktrees/$old-$number
    done
    printf %s "${gitdir##*/}" >"$trash/name.part"
    mv "$trash/name.part" "$trash/name"
  fi
  name=$(cat "$trash/name")
  gitdir=$common/worktrees/$name
  move "$trash/admin" "$gitdir" "$trash/admin-out" "$common"
  if [ "$was" != "$branch" ] && [ "$(cat "$gitdir/HEAD" 2>/dev/null)" = "ref: refs/heads/$was" ]; then
    printf 'ref: refs/heads/%s\n' "$branch" >"$gitdir/HEAD.lock"
    mv "$gitdir/HEAD.lock" "$gitdir/HEAD"
  fi
  if [ "$name" != "$old" ] && [ -d "$workdir" ]; then
    printf 'gitdir: %s\n' "$gitdir" >"$workdir/.git"
    if [ -d "$gitdir/modules" ]; then
      find "$workdir" -name .git -type f >"$tmp/links"
      while IFS= read -r link; do
        sed "s:/worktrees/$old/modules/:/worktrees/$name/modules/:" "$link" >"$tmp/link"
        cat "$tmp/link" >"$link"
      done <"$tmp/links"
    fi
  fi
  do_drop "$common" "$id"
  rm -f "$trash/tip" "$trash/reflog" "$trash/kept" # the name stays, for a caller that missed the answer
}

do_drop() { # COMMON ID
  sealed
  if git --git-dir="$1" rev-parse -q --verify "refs/muster/trash/$2" >/dev/null; then
    again git --git-dir="$1" update-ref -d "refs/muster/trash/$2"
  fi
}

do_unique() { # COMMON REV BRANCH: commits of REV that no other branch, tag or remote has
  sealed
  git --git-dir="$1" rev-list --count "$2" --not --exclude="$3" --branches --tags --remotes --
}

verb "$@"
