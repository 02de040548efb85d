# shellcheck shell=sh
# hand ID NAME < content: put one file into an agent's folder. It appears complete and replaces a former one.
mu_enter "$1"
mu_half=.$2.$$
rm -rf "$mu_half"
if ! cat >"$mu_half"; then
	rm -f "$mu_half"
	die 1 "cannot write to $mu_home/agents/$1"
fi
[ ! -d "$2" ] || [ -h "$2" ] || rm -rf "$2"
mv -f "$mu_half" "$2"
