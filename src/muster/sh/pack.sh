# shellcheck shell=sh
# pack FOLDER: all of a folder as a tar. A link in its place, which an agent may have put there, is not followed: exit code 5.
mu_parent=$(cd -P -- "${1%/*}/" && pwd -P) || exit 2
cd -P -- "$1" || exit 2
[ "$(pwd -P)" = "${mu_parent%/}/${1##*/}" ] || exit 5
exec tar -cf - .
