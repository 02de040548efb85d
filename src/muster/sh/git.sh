# shellcheck shell=sh
# shellcheck disable=SC2154,SC2034,SC2164  # set -e comes from lib.sh, which stands in front; the verbs of git-*.sh stand behind
# Shared by all git verbs on a host. A verb is a do_ function in one of the other files; $1 names it.
# A refusal exits with 5 and prints `refused: WHY` (and `hint: WHAT TO TYPE`) on stderr.
umask "$mu_umask" # work trees and objects belong to the user, not to muster's private state
unset CDPATH GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_COMMON_DIR GIT_OBJECT_DIRECTORY GIT_NAMESPACE GIT_PREFIX \
  GIT_ALTERNATE_OBJECT_DIRECTORIES GIT_CONFIG GIT_CONFIG_PARAMETERS GIT_EXTERNAL_DIFF GIT_DIFF_OPTS GIT_SHALLOW_FILE \
  GIT_LITERAL_PATHSPECS GIT_GLOB_PATHSPECS GIT_NOGLOB_PATHSPECS GIT_ICASE_PATHSPECS GIT_REPLACE_REF_BASE GIT_GRAFT_FILE
export LC_ALL=C GIT_OPTIONAL_LOCKS=0 GIT_TERMINAL_PROMPT=0 GIT_NO_REPLACE_OBJECTS=1
# Configuration on the command line overrides every file: no hooks, no file system monitors, no background maintenance.
export GIT_CONFIG_COUNT=7 \
  GIT_CONFIG_KEY_0=core.hooksPath GIT_CONFIG_VALUE_0=/dev/null \
  GIT_CONFIG_KEY_1=core.fsmonitor GIT_CONFIG_VALUE_1=false \
  GIT_CONFIG_KEY_2=core.splitIndex GIT_CONFIG_VALUE_2=false \
  GIT_CONFIG_KEY_3=gc.auto GIT_CONFIG_VALUE_3=0 \
  GIT_CONFIG_KEY_4=maintenance.auto GIT_CONFIG_VALUE_4=false \
  GIT_CONFIG_KEY_5=submodule.recurse GIT_CONFIG_VALUE_5=false \
  GIT_CONFIG_KEY_6=core.safecrlf GIT_CONFIG_VALUE_6=false
tmp=$(mu_scratch)
undo=: # the command that reverts what an early exit would leave behind
trap '$undo; rm -rf "$tmp"' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
newline='
'

verb() { name=$1; shift; "do_$name" "$@"; }

refuse() { printf 'refused: %s\n' "$1" >&2; [ -z "${2-}" ] || printf 'hint: %s\n' "$2" >&2; exit 5; }

# Join the names of a NUL-separated list for a message.
names() { tr '\n\0' '?\n' <"$1" | sed -e 's/[^ -~]/?/g' | head -n "${2:-5}" | paste -s -d , - | sed 's/,/, /g'; }

as_muster() {
  GIT_AUTHOR_NAME=muster GIT_AUTHOR_EMAIL=muster@localhost GIT_COMMITTER_NAME=muster GIT_COMMITTER_EMAIL=muster@localhost "$@"
}

# From here on the configuration of this machine's user is ignored, and git may not start a transport.
sealed() {
  export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_ATTR_NOSYSTEM=1 \
    GIT_ALLOW_PROTOCOL=none GIT_NO_LAZY_FETCH=1 GIT_SSH_COMMAND=false GIT_ASKPASS=false GIT_PAGER=cat
}

# Parallel creates in one repository compete for git's lock files, so retry.
again() {
  tries=0
  until "$@" 2>"$tmp/err"; do
    tries=$((tries + 1))
    if [ "$tries" -ge 50 ] || ! grep -qE '\.lock|File exists' "$tmp/err"; then
      cat "$tmp/err" >&2
      return 1
    fi
    sleep 0.1 2>/dev/null || sleep 1
  done
}

idle() { # GITDIR: refuse while a merge, rebase or pick is under way there
  for at in MERGE_HEAD:merge CHERRY_PICK_HEAD:cherry-pick REVERT_HEAD:revert rebase-merge:rebase rebase-apply:rebase; do
    [ ! -e "$1/${at%:*}" ] || refuse "a ${at#*:} is in progress" "$2"
  done
}

##### capturing: a commit of the work tree whose parents are HEAD, the index, and (if any) its intent-to-add entries

# The agent's own git directory is only asked for commit ids. Everything else uses muster's shadow git directory, whose
# configuration the agent did not write, and a copy of the agent's index.
# With BRANCH it also works if the work dir is gone but the git directory, which lies elsewhere, is not. Then `gone` is set,
# and only commits are available.
unlinked() { # GITDIR…: refuse if git would follow a link in one of them. Hooks never run, and the index is a copy, so those may be links
  linked=$(find "$@" ! -path '*/hooks/*' ! -name index -type l 2>/dev/null | head -n 1)
  [ -z "$linked" ] || refuse "$linked is a link, and git would read what it leads to" "remove it"
}

is_shadow() { case $1 in */agents/*/git) ;; *) return 1 ;; esac } # as opposed to a repository of the user

enter() { # WORKDIR GITDIR SHADOW [BRANCH]
  sealed
  workdir=$1 gitdir=$2 shadow=$3 branch=${4-} gone='' damaged=''
  if [ ! -d "$workdir" ] || [ -L "$workdir" ]; then
    case $gitdir,$branch in
    *, | ,* | "$workdir"/*) die 3 "its work dir $workdir is gone" ;;
    *) gone=1 ;;
    esac
    workdir=$tmp/gone
    mkdir "$workdir"
  fi
  cd -- "$workdir"
  export GIT_DIR="$shadow" GIT_WORK_TREE="$workdir" GIT_INDEX_FILE="$tmp/index"
  index=${gitdir:-$shadow}/index
  : >"$tmp/pipes"
  # `none`: the caller has already checked the folders of several agents at once.
  [ "${checked-}" = none ] || find . ${gitdir:+"$gitdir"} -type p >"$tmp/pipes" 2>/dev/null || :
  if [ -s "$tmp/pipes" ] && grep -qE '^/|/\.git' "$tmp/pipes"; then
    refuse "git would wait for ever for the named pipe $(grep -E '^/|/\.git' "$tmp/pipes" | head -n 1)" "remove it"
  fi
  if [ "${checked-}" != none ]; then
    # A repository of the user may contain links. One that muster made contains none, so any link is the agent's.
    unlinked "$shadow"
    case $gitdir in "${shadow%/agents/*}"/*) [ -L "$gitdir" ] || unlinked "$gitdir" ;; esac # `look` refuses such a link
  fi
  look
  [ ! -e "$tmp/index" ] || rm -f "$tmp/index"
  copied "$index" || damaged=1
  for part in "$gitdir"/sharedindex.*; do
    if [ -f "$part" ] && [ ! -L "$part" ]; then cp -p "$part" "$shadow/" 2>/dev/null || :; fi
  done
  [ -n "$damaged" ] || sound || damaged=1
  if [ -n "$damaged$gone" ]; then as_head; fi
}

copied() { # INDEX: copy it to $tmp/index if it exists, without following links
  [ -e "$1" ] || [ -L "$1" ] || return 0
  # -p: git distrusts entries that are as new as the index, so the copy must keep its time
  [ -f "$1" ] && [ ! -L "$1" ] && cp -p "$1" "$tmp/index" 2>/dev/null
}

sound() { # detect a truncated index, of which git reads the missing part as zeros
  git ls-files -s >"$tmp/entries" 2>/dev/null && ! grep -qE '^0* |^[0-9]* 0* |	$' "$tmp/entries"
}

as_head() { # replace an index that git cannot use by that of HEAD, so that all changes count as unstaged
  rm -f "$tmp/index"
  git read-tree "$head"
}

look() { # set head, the commit that the agent is at
  if [ -n "$gitdir" ]; then
    if [ ! -d "$gitdir" ] || [ -L "$gitdir" ]; then refuse "its git dir is not where muster put it ($gitdir)"; fi
    case $gitdir in
    */worktrees/*) ;; # the user's own, in place
    *) [ ! -e "$gitdir/commondir" ] || refuse "its git dir points to another repository ($gitdir/commondir)" "remove that file" ;;
    esac
    head=$(git --git-dir="$gitdir" rev-parse -q --verify HEAD) || refuse "its branch has no commit"
  else
    head=$(git rev-parse -q --verify HEAD)
    return
  fi
  if [ "$(cat "$shadow/HEAD")" != "$head" ]; then
    printf '%s\n' "$head" >"$shadow/HEAD.$$.${tmp##*/}"
    mv -f "$shadow/HEAD.$$.${tmp##*/}" "$shadow/HEAD"
  fi
}

take() { # strict|lenient MESSAGE: set state; write only the index copy and the object store
  if [ "$1" = strict ]; then depth=none; else depth=dirty; fi # git in a submodule would read that submodule's configuration
  : >"$tmp/nested"
  state=$head intent=
  [ -z "${gone-}" ] || return 0
  git status --porcelain=v2 -z --no-renames --untracked-files=all --ignore-submodules="$depth" >"$tmp/raw"
  if [ ! -s "$tmp/raw" ] && [ -z "${2-}" ]; then return; fi
  tr '\n\0' '\001\n' <"$tmp/raw" >"$tmp/status"
  if grep -q '^u ' "$tmp/status"; then
    [ "$1" = lenient ] || refuse "there are unmerged files" "commit or abort the merge, or use --clean"
    index_tree=$(git rev-parse "$head^{tree}")
  else
    if ! index_tree=$(git write-tree 2>"$tmp/err"); then # the error names what is missing
      if [ "$1" = strict ]; then die 1 "$(cat "$tmp/err")"; fi
      as_head
      index_tree=$(git rev-parse "$head^{tree}")
    fi
    if grep -qE '^1 ([.D]. [^ ]* (000000|[^ ]* 000000)|\.D [^ ]* [^ ]* [^ ]* 000000) ' "$tmp/status"; then
      # write-tree leaves out intent-to-add entries; one whose file was removed looks like any removed file
      git ls-files -s -z >"$tmp/entries"
      GIT_INDEX_FILE="$tmp/intent" git update-index -z --index-info <"$tmp/entries"
      intent=$(GIT_INDEX_FILE="$tmp/intent" git write-tree)
      [ "$intent" != "$index_tree" ] || intent=
    fi
  fi
  sed -nE 's/^1 .. S(.M.|..U) ([^ ]* ){5}//p' "$tmp/status" | tr '\n' '\0' >"$tmp/dirty"
  if [ "$1" = strict ] && [ -s "$tmp/dirty" ]; then
    refuse "the submodule $(names "$tmp/dirty") has uncommitted changes" "commit them there, or use --clean"
  fi
  git diff-files --name-only -z --diff-filter=D --ignore-submodules=dirty >"$tmp/list"
  git update-index --force-remove -z --stdin <"$tmp/list"
  git diff-files --name-only -z --diff-filter=d --ignore-submodules=dirty >"$tmp/list"
  git update-index --add --remove -z --stdin <"$tmp/list"
  git ls-files --others --exclude-standard -z >"$tmp/list"
  if tr '\0' '\n' <"$tmp/list" | grep -q '/$'; then # nested repositories
    # shellcheck disable=SC2016  # expanded by the inner shell
    xargs -0 sh -c 'for p; do case $p in */) printf "%s\0" "$p" ;; esac; done' sh <"$tmp/list" >"$tmp/nested"
    # shellcheck disable=SC2016
    xargs -0 sh -c 'for p; do case $p in */) ;; *) printf "%s\0" "$p" ;; esac; done' sh <"$tmp/list" >"$tmp/files"
    mv "$tmp/files" "$tmp/list"
  fi
  git update-index --add -z --stdin <"$tmp/list"
  tree=$(git write-tree)
  if [ -z "${2-}$intent" ] && [ "$tree" = "$index_tree" ] && [ "$tree" = "$(git rev-parse "$head^{tree}")" ]; then return; fi
  part=$(as_muster git commit-tree "$index_tree" -p "$head" -m index)
  set -- "${2:-work in progress}" -p "$head" -p "$part"
  if [ -n "$intent" ]; then
    part=$(as_muster git commit-tree "$intent" -p "$head" -m intent)
    set -- "$@" -p "$part"
  fi
  state=$(as_muster git commit-tree "$tree" -m "$@")
}

lay() { # BASE STATE: the reverse of take: write both into the current work tree and index
  git read-tree --reset -u "$2"
  [ "$1" != "$2" ] || return 0
  if git rev-parse -q --verify "$2^3" >/dev/null; then
    git read-tree --reset "$2^3"
    git reset -q -N "$2^2" -- .
    # git would create a plain file for every intent-to-add entry whose file is gone, so a link stands in for a moment.
    git diff-tree -r -z --diff-filter=A "$2^2" "$2^3" >"$tmp/intents"
    # shellcheck disable=SC2016  # expanded by the inner shell
    xargs -0 -n 2 sh -c 'case ${1-} in *" 120000 "*) ;; *) exit 0 ;; esac
      [ ! -h "$2" ] || exit 0
      git update-index --force-remove -- "$2"
      mkdir -p -- "$(dirname -- "$2")" && ln -s . "$2" || exit 0
      GIT_LITERAL_PATHSPECS=1 git add -f -N -- "$2"
      rm -f -- "$2"' sh <"$tmp/intents"
  else
    git read-tree --reset "$2^2"
  fi
}

alternates() { # OBJECTS OTHER…
  into=$1/info/alternates
  shift
  [ -d "${into%/*}" ] || mkdir -p "${into%/*}"
  for one; do
    case $one in
    *"$newline"*) printf '%s\n' "$one" | sed -e ':a' -e '$!{' -e N -e ba -e '}' -e 's/[\\"]/\\&/g' -e 's/\n/\\n/g' -e 's/.*/"&"/' ;;
    *) printf '%s\n' "$one" ;;
    esac
  done >"$into"
}

init_mirror() { # WORKDIR CACHE BRANCH FORMAT
  git init -q --template= --object-format="$4" --initial-branch="$3" -- "$1" >/dev/null
  alternates "$1/.git/objects" "$2/objects"
}
