# shellcheck shell=sh
# release ID NAME: the folder of an agent that never came to life, and its name.
cd "$mu_home" 2>/dev/null || exit 0
[ ! -d "agents/$1" ] || mv "agents/$1" "agents/.$1"
rm -rf "agents/.$1"
[ "$(cat "names/$2" 2>/dev/null)" != "$1" ] || rm -f "names/$2"
