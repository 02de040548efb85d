# shellcheck shell=sh
# rename ID OLD NEW < tar with the changed record: the new name is taken first, so no moment has none.
mu_id=$1 mu_old=$2 mu_new=$3
cd "$mu_home"
printf '%s\n' "$mu_id" >"names/.$mu_id"
if ! ln "names/.$mu_id" "names/$mu_new" 2>/dev/null; then
	mu_owner=$(cat "names/$mu_new" 2>/dev/null || :)
	if [ "$mu_owner" != "$mu_id" ] && { [ -z "$mu_owner" ] || [ -d "agents/$mu_owner" ]; }; then
		rm -f "names/.$mu_id"
		die 17 "the name $mu_new is taken"
	fi
	mv -f "names/.$mu_id" "names/$mu_new"
fi
rm -f "names/.$mu_id"
cd "agents/$mu_id"
tar -xf -
mv -f agent.json.new agent.json
cd "$mu_home/names"
if [ "$mu_old" != "$mu_new" ] && [ "$(cat "$mu_old" 2>/dev/null)" = "$mu_id" ]; then
	rm -f "$mu_old"
fi
