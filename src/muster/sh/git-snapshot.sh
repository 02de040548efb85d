# shellcheck shell=sh
# shellcheck disable=SC2154,SC2034,SC2164  # variables and set -e come from lib.sh and git.sh
# Snapshots: captured states, which live in the shadow git directory.

keep() { # ID COMMIT
  printf '%s\n^%s\n' "$2" refs/muster/base >"$tmp/revs"
  git pack-objects --revs -q "$shadow/objects/pack/pack" <"$tmp/revs" >/dev/null
  # Only create the ref: of two snapshots at the same moment, the second must not replace the first.
  git update-ref "refs/muster/snapshots/$1" "$2" "" 2>/dev/null || refuse "the snapshot $1 exists already" "try again"
}

snap() { # ID COMMENT: save the state of the current work tree and its branch
  branch=
  [ -z "$gitdir" ] || branch=$(git --git-dir="$gitdir" symbolic-ref -q HEAD || :)
  take lenient "${2:-snapshot}

branch: $branch"
  keep "$1" "$state"
}

branch_of() { git log -1 --format=%B "$1" | sed -n 's/^branch: \(refs\/heads\/.*\)$/\1/p' | tail -n 1; }

do_snapshot() { # WORKDIR GITDIR SHADOW ID COMMENT
  enter "$1" "$2" "$3"
  if git rev-parse -q --verify "refs/muster/snapshots/$4" >/dev/null; then refuse "the snapshot $4 exists already" "choose another name"; fi
  snap "$4" "$5"
  printf '%s\n' "$state"
}

do_snapshots() { # SHADOW
  sealed
  unlinked "$1"
  git --git-dir="$1" for-each-ref --sort=creatordate \
    --format='%(refname:lstrip=3)%00%(objectname)%00%(creatordate:unix)%00%(subject)' refs/muster/snapshots
}

do_forget() { # SHADOW ID
  sealed
  unlinked "$1"
  git --git-dir="$1" rev-parse -q --verify "refs/muster/snapshots/$2" >/dev/null || die 3 "there is no snapshot $2"
  git --git-dir="$1" update-ref -d "refs/muster/snapshots/$2"
}

do_restore() { # WORKDIR GITDIR COMMON SHADOW ID AUTO: AUTO names the snapshot of the present state
  workdir=$1 gitdir=$2 common=$3 shadow=$4 id=$5 auto=$6
  sealed
  export GIT_DIR="$shadow"
  wanted=$(git rev-parse -q --verify "refs/muster/snapshots/$id") || die 3 "there is no snapshot $id"
  was=$(git rev-parse "$wanted^1")
  there=1
  if [ ! -e "$workdir" ]; then there='' && revive; fi
  if [ -n "$gitdir" ]; then # the agent's own git needs these objects even if the agent has pruned them
    printf '%s\n^%s\n' "$wanted" refs/muster/base >"$tmp/revs"
    git pack-objects --revs -q "$common/objects/pack/pack" <"$tmp/revs" >/dev/null
  fi
  if [ -z "$there" ] && [ -n "$gitdir" ]; then git --git-dir="$gitdir" update-ref HEAD "$was"; fi
  enter "$workdir" "$gitdir" "$shadow"
  if [ -n "$there" ]; then snap "$auto" "before restoring $id"; else rm -f "$tmp/index"; fi
  (set -C && : >"$index.lock") 2>/dev/null || refuse "git is at work there" "stop the agent first, or try again"
  undo=unlock
  lay "" "$wanted"
  cp -p "$tmp/index" "$index.lock"
  undo=:
  [ ! -d "$index" ] || rm -rf "$index" # mv would move into it
  mv -f "$index.lock" "$index"
  if [ -n "$gitdir" ]; then
    for part in MERGE_HEAD MERGE_MSG MERGE_MODE CHERRY_PICK_HEAD REVERT_HEAD rebase-merge rebase-apply sequencer; do
      rm -rf "${gitdir:?}/$part"
    done
    branch=$(branch_of "$wanted")
    if [ -n "$branch" ]; then git --git-dir="$gitdir" symbolic-ref HEAD "$branch"; fi
    git --git-dir="$gitdir" update-ref -m "muster: restore" --no-deref "${branch:-HEAD}" "$was"
  fi
}

unlock() { rm -f "$index.lock"; }

revive() { # make the work dir again if it is gone
  mkdir -p "$workdir"
  if [ -f "$shadow/cache" ] && [ ! -d "$gitdir" ]; then
    (unset GIT_DIR && init_mirror "$workdir" "$(cat "$shadow/cache")" muster-restored "$(git rev-parse --show-object-format)")
    cp "$shadow/config.seed" "$gitdir/config"
    if [ -f "$shadow/shallow" ]; then cp "$shadow/shallow" "$gitdir/shallow"; fi
    branch=$(branch_of "$wanted")
    [ -z "$branch" ] || git --git-dir="$gitdir" symbolic-ref HEAD "$branch"
  elif [ -n "$gitdir" ] && [ "$gitdir" != "$workdir/.git" ]; then
    printf 'gitdir: %s\n' "$gitdir" >"$workdir/.git"
  fi
}

verb "$@"
