# shellcheck shell=sh
# claim ID NAME < tar: take the name and write the first record, or exit 17 when it is taken.
mu_id=$1 mu_name=$2
mkdir -p "$mu_home" "$mu_home/agents" "$mu_home/names" "$mu_home/work" "$mu_home/trash"
cd "$mu_home"
mkdir "agents/$mu_id"
printf '%s\n' "$mu_id" >"names/.$mu_id"
# link(2) is atomic and brings the content along. A name whose agent is gone is free.
if ! ln "names/.$mu_id" "names/$mu_name" 2>/dev/null; then
	mu_owner=$(cat "names/$mu_name" 2>/dev/null || :)
	if [ -z "$mu_owner" ] || [ -d "agents/$mu_owner" ]; then
		rm -f "names/.$mu_id"
		rmdir "agents/$mu_id"
		die 17 "the name $mu_name is taken"
	fi
	mv -f "names/.$mu_id" "names/$mu_name"
	if [ "$(cat "names/$mu_name")" != "$mu_id" ]; then
		rmdir "agents/$mu_id"
		die 17 "the name $mu_name is taken"
	fi
fi
rm -f "names/.$mu_id"
mkdir "agents/$mu_id/ev" "agents/$mu_id/rec" "agents/$mu_id/bin" "agents/$mu_id/session"
if ! tar -xf - -C "agents/$mu_id"; then
	rm -rf "agents/$mu_id"
	rm -f "names/$mu_name"
	die 1 "cannot write to $mu_home/agents/$mu_id"
fi
pwd -P
