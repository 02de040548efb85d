# shellcheck shell=sh
# shellcheck disable=SC2154,SC2034,SC2164  # variables and set -e come from lib.sh and git.sh
# Inspect a repository and capture uncommitted work.

do_find() { # PATH
  cd -- "${1:-.}" 2>/dev/null || exit 3
  code=0 # git prints unknown flags unchanged, so `--:` separates paths, which may contain newlines
  where=$(git rev-parse --path-format=absolute --is-bare-repository --is-shallow-repository --show-object-format \
    --absolute-git-dir --: --git-common-dir --: --show-prefix --: --show-toplevel 2>"$tmp/err") || code=$?
  if [ -z "$where" ]; then
    if grep -q 'not a git repository' "$tmp/err"; then exit 3; fi
    cat "$tmp/err" >&2
    exit "$code"
  fi
  between="$newline--:$newline"
  common=${where#*"$between"}
  common=${common%%"$between"*}
  printf '%s\0' "$where"
  git rev-parse -q --verify HEAD || :
  printf '\0'
  git symbolic-ref -q HEAD || :
  printf '\0'
  cat "$common/info/exclude" 2>/dev/null || :
  cat "$(git config --type=path --get core.excludesFile || printf %s "${XDG_CONFIG_HOME:-$HOME/.config}/git/ignore")" 2>/dev/null || :
  printf '\0'
  cat "$common/shallow" 2>/dev/null || :
  printf '\0'
  top=${where##*"$between"}
  if [ "$code" = 0 ] && [ -f "$top/.gitmodules" ]; then submodules "$top"; fi
  printf '\0'
  git config -z --get-regexp '^(user\.(name|email)|core\.sparsecheckout|remote\..*\.promisor|extensions\.partialclone)$' || :
}

submodules() { # TOP: print the paths of checked-out submodules
  git config -f "$1/.gitmodules" --get-regexp '^submodule\..*\.path$' >"$tmp/modules" || :
  while IFS= read -r line; do
    path=${line#*.path }
    if [ -e "$1/$path/.git" ]; then printf '%s\n' "$path"; fi
  done <"$tmp/modules"
}

do_capture() { # WORKDIR
  cd -- "$1"
  cd -- "./$(git rev-parse --show-cdup)" # git lists untracked files from here down
  gitdir=$(git rev-parse --absolute-git-dir)
  head=$(git rev-parse -q --verify HEAD) || refuse "the repository has no commit yet" "commit once, or use --mode copy"
  idle "$gitdir" "commit or abort it, or use --clean"
  export GIT_INDEX_FILE="$tmp/index"
  if [ -f "$gitdir/index" ]; then cp -p "$gitdir/index" "$tmp/index"; fi
  take strict
  printf '%s %s\n' "$head" "$state"
  cat "$tmp/nested"
}

do_harvest() { # WORKDIR GITDIR SHADOW BRANCH
  enter "$@"
  take lenient
  printf '%s %s\n' "$head" "$state"
  cat "$tmp/nested"
}

verb "$@"
