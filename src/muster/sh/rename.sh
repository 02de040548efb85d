# shellcheck shell=sh
# rename ID OLD NEW RECORD < tar with the changed record: the new name is taken first, so no moment has none.
mu_id=$1 mu_old=$2 mu_new=$3 mu_record=$4
cd "$mu_home"
[ -d "agents/$mu_id" ] || die 3 "no agent $mu_id"
mu_code=0
mu_take "$mu_id" "$mu_new" || mu_code=$?
[ "$mu_code" = 0 ] || die "$mu_code" "the name $mu_new is taken"
cd "agents/$mu_id"
tar -xf -
mv -f "$mu_record" agent.json
cd "$mu_home/names"
if [ "$mu_old" != "$mu_new" ] && [ "$(cat "$mu_old" 2>/dev/null)" = "$mu_id" ]; then
	rm -f "$mu_old"
fi
