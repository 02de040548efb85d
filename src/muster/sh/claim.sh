# shellcheck shell=sh
# claim ID NAME < tar: write the first record and claim the name; exit with 17 if it is taken.
# The folder appears complete, and before the name, so a kill at any moment leaves no name without a record.
mu_id=$1 mu_name=$2
mkdir -p "$mu_home" "$mu_home/agents" "$mu_home/names" "$mu_home/work" "$mu_home/trash"
cd "$mu_home"
trap '[ "$?" = 0 ] || rm -rf "agents/.$mu_id" "agents/$mu_id" "names/.$mu_id"' EXIT
mkdir "agents/.$mu_id"
mkdir "agents/.$mu_id/ev" "agents/.$mu_id/rec" "agents/.$mu_id/bin" "agents/.$mu_id/session"
tar -xf - -C "agents/.$mu_id" || die 1 "cannot write to $mu_home/agents/$mu_id"
mv "agents/.$mu_id" "agents/$mu_id"
# Reserve space that `destroy` frees on a full disk; see `trash room`.
[ -e reserve ] || { dd if=/dev/zero of=".reserve.$mu_id" bs=1024 count=256 2>/dev/null && mv ".reserve.$mu_id" reserve; } ||
	rm -f ".reserve.$mu_id"
mu_code=0
mu_take "$mu_id" "$mu_name" || mu_code=$?
[ "$mu_code" = 0 ] || die "$mu_code" "the name $mu_name is taken"
pwd -P
