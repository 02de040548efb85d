# shellcheck shell=sh
# shellcheck disable=SC2154,SC2034,SC2164  # variables and set -e come from lib.sh and git.sh
# Refs and commits of an agent in the user's repository.

do_drop() { # COMMON REF
  sealed
  if git --git-dir="$1" rev-parse -q --verify "$2" >/dev/null; then
    again git --git-dir="$1" update-ref -d "$2"
  fi
}

do_unique() { # COMMON REV BRANCH: count commits of REV that no other branch, tag or remote branch contains
  sealed
  git --git-dir="$1" rev-list --count "$2" --not --exclude="$3" --branches --tags --remotes --
}

verb "$@"
