# shellcheck shell=sh
# unpack DIR [< tar]: unpack into a folder, which is created if needed; --make only creates it.
umask "$mu_umask"
mkdir -p "$1"
[ "${2:-}" = --make ] || tar -xf - -C "$1"
