# shellcheck shell=sh
# clone URL DIR BRANCH BASE: clone a remote repository with this host's git and credentials.
umask "$mu_umask"
GIT_TERMINAL_PROMPT=0
export GIT_TERMINAL_PROMPT
trap '[ "$?" = 0 ] || rm -rf "$mu_dir"' EXIT
mu_dir=$2
git clone -q -- "$1" "$mu_dir"
cd "$mu_dir"
git switch -q --no-track -c "$3" "${4:-HEAD}"
