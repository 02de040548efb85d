# shellcheck shell=sh
# claim ID NAME < tar: write the first record and take the name, or exit 17 when it is taken.
# The folder appears whole, and before the name: killed at any moment, there is no name without a record.
mu_id=$1 mu_name=$2
mkdir -p "$mu_home" "$mu_home/agents" "$mu_home/names" "$mu_home/work" "$mu_home/trash"
cd "$mu_home"
trap '[ "$?" = 0 ] || rm -rf "agents/.$mu_id" "agents/$mu_id" "names/.$mu_id"' EXIT
mkdir "agents/.$mu_id"
mkdir "agents/.$mu_id/ev" "agents/.$mu_id/rec" "agents/.$mu_id/bin" "agents/.$mu_id/session"
tar -xf - -C "agents/.$mu_id" || die 1 "cannot write to $mu_home/agents/$mu_id"
mv "agents/.$mu_id" "agents/$mu_id"
# Space for a `destroy` on a full disk, which gives it up; see `trash room`.
[ -e reserve ] || { dd if=/dev/zero of=".reserve.$mu_id" bs=1024 count=256 2>/dev/null && mv ".reserve.$mu_id" reserve; } ||
	rm -f ".reserve.$mu_id"
mu_code=0
mu_take "$mu_id" "$mu_name" || mu_code=$?
[ "$mu_code" = 0 ] || die "$mu_code" "the name $mu_name is taken"
pwd -P
