# shellcheck shell=sh
# unpack DIR [< tar]: into a folder that is made if need be; --make only makes it.
umask "$mu_umask"
mkdir -p "$1"
[ "${2:-}" = --make ] || tar -xf - -C "$1"
