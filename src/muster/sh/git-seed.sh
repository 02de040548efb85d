# shellcheck shell=sh
# shellcheck disable=SC2154,SC2034,SC2164  # variables and set -e come from lib.sh and git.sh
# Making work trees, and the shadow git dir beside each.

shadow() { # SHADOW BASE FORMAT EXCLUDE OBJECTS…; run where the work tree's own configuration can still be trusted
  made=$1 base=$2 format=$3 exclude=$4
  shift 4
  mkdir -p "$made/objects/pack" "$made/refs/muster" "$made/info"
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

began() { # SHADOW BASE STATE: remember what was not committed at birth, so that a diff shows the agent's own changes only
  [ "$2" != "$3" ] || return 0
  # Nothing in the user's repository names this commit: the shadow holds its objects.
  printf '%s\n^%s\n' "$3" "$2" | git pack-objects --revs --thin --stdout -q >"$tmp/began"
  git --git-dir="$1" index-pack --stdin --fix-thin <"$tmp/began" >/dev/null
  printf '%s\n' "$3" >"$1/refs/muster/start"
}

do_worktree() { # TOP COMMON WORKDIR SHADOW BRANCH BASE STATE FORMAT EXCLUDE
  top=$1 common=$2 workdir=$3 made=$4 branch=$5 base=$6 state=$7
  cd -- "$top"
  vacant "$workdir"
  if ! again git update-ref -m "muster: created" "refs/heads/$branch" "$base" "" 2>"$tmp/why"; then
    if git rev-parse -q --verify "refs/heads/$branch" >/dev/null; then
      refuse "the branch $branch exists already" "choose another name: --branch BASE:NEW"
    fi
    refuse "cannot make the branch $branch: $(sed 's/^[a-z]*: //' "$tmp/why")" "choose another name"
  fi
  if ! again git worktree add -q --no-checkout -- "$workdir" "$branch"; then
    git update-ref -d "refs/heads/$branch" "$base"
    exit 1
  fi
  undo=unmake
  cd -- "$workdir"
  gitdir=$(git rev-parse --absolute-git-dir)
  lay "$base" "$state"
  fill "$top" "$workdir"
  shadow "$made" "$base" "$8" "$9" "$common/objects"
  began "$made" "$base" "$state"
  undo=:
  printf %s "$gitdir"
}

unmake() {
  git -C "$top" worktree remove --force --force -- "$workdir" || :
  git -C "$top" update-ref -d "refs/heads/$branch" "$base" || :
}

fill() { # FROM TO [DEPTH]: submodules, from the copies that are checked out already
  [ -f "$2/.gitmodules" ] || return 0
  git config -f "$2/.gitmodules" --name-only --get-regexp '^submodule\..*\.path$' >"$tmp/modules${3-}" || :
  while IFS= read -r key; do
    name=${key#submodule.}
    name=${name%.path}
    path=$(git config -f "$2/.gitmodules" "$key")
    case /$path/ in */../* | //*) continue ;; esac
    [ -e "$1/$path/.git" ] || continue
    (
      from=$(git -C "$1/$path" rev-parse --absolute-git-dir)
      at=$(git -C "$1/$path" rev-parse HEAD)
      url=$(git -C "$1/$path" config remote.origin.url || :)
      git -C "$2" -c protocol.file.allow=always -c "submodule.$name.url=$from" submodule --quiet update --init -- "$path"
      git -C "$2/$path" checkout -q --detach "$at"
      [ -z "$url" ] || git -C "$2/$path" config remote.origin.url "$url"
      fill "$1/$path" "$2/$path" "${3-}+"
    ) >&2 </dev/null
  done <"$tmp/modules${3-}"
}

do_haves() { # GITDIR|@KEY WANT OBJECTS FORMAT: commits to build on, WANT if it is there; @KEY is a host's cache of one origin
  from=$1 want=$2
  case $from in
  @*)
    from=$mu_home/repos/${from#@}.git
    if [ ! -e "$from/ready" ]; then
      mkdir -p "$mu_home/repos"
      again git init -q --bare --template= --object-format="$4" -- "$from"
      : >"$from/ready"
    fi
    set -- refs/muster/have
    ;;
  *) if [ -n "$3" ]; then export GIT_OBJECT_DIRECTORY="$3" && set -- refs/muster/base; else set --; fi ;;
  esac
  sealed
  export GIT_DIR="$from"
  if [ -n "$want" ] && git cat-file -e "$want^{commit}" 2>/dev/null; then printf '%s\n' "$want"; fi
  git rev-parse -q --verify HEAD || :
  git for-each-ref --sort=-creatordate --count=200 --format='%(objectname)' "$@"
}

do_pack() { # send|explain GITDIR WANT… ^HAVE…
  if [ "$1" = send ]; then exec 2>/dev/null; else exec >/dev/null; fi
  sealed
  export GIT_DIR="$2"
  shift 2
  for rev; do case $rev in ^*) printf '%s\n' "${rev#^}" ;; esac; done >"$tmp/haves"
  for rev; do case $rev in ^*) ;; *) printf '%s\n' "$rev" ;; esac; done >"$tmp/revs"
  git cat-file --batch-check='^%(objectname) %(objecttype)' <"$tmp/haves" >"$tmp/known"
  sed -n 's/ commit$//p' "$tmp/known" >>"$tmp/revs"
  git pack-objects --revs --thin --stdout -q --delta-base-offset <"$tmp/revs"
}

do_mirror() { # PACK KEY WORKDIR SHADOW BRANCH BASE STATE FORMAT EXCLUDE NAME EMAIL SHALLOW; a pack on stdin if PACK
  pack=$1 cache=$mu_home/repos/$2.git workdir=$3 made=$4 branch=$5 base=$6 state=$7 format=$8 exclude=$9
  shift 9
  vacant "$workdir"
  undo=unmirror
  [ -z "$pack" ] || git --git-dir="$cache" index-pack --stdin --fix-thin >/dev/null
  kind=${3:+shallow} # a shallow history is no ground to build a later pack on
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
  cp .git/config "$made/config.seed"
  printf %s "$cache" >"$made/cache"
  undo=:
}

unmirror() { rm -rf "$workdir" "$made"; }

do_shadow() { # WORKDIR SHADOW GITDIR COMMON FORMAT EXCLUDE: for a work tree that stays as it is
  cd -- "$1"
  head=$(git --git-dir="$3" rev-parse -q --verify HEAD) || refuse "the repository has no commit yet" "commit once"
  shadow "$2" "$head" "$5" "$6" "$4/objects"
}

do_baseline() { # WORKDIR SHADOW: everything in the folder but git's own, as the shadow's first commit
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
