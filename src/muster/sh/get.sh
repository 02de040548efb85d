# shellcheck shell=sh
# get ID NAME…: send those files of an agent's folder that exist as a tar, also from the trash.
# Of a file larger than any that muster writes (an agent must have made it so) only the end is sent.
mu_id=$1 mu_cap=134217728
shift
mu_enter "$mu_id" trash
mu_count=$#
while [ "$mu_count" -gt 0 ]; do
	# Names may be patterns.
	for mu_file in $1; do
		if [ -f "$mu_file" ] && ! mu_linked "$mu_file"; then set -- "$@" "$mu_file"; fi
	done
	shift
	mu_count=$((mu_count - 1))
done
[ $# -gt 0 ] || exit 0
mu_large=$(find "$@" -prune -size +$((mu_cap / 512)))
# tar exits with 1 if a live agent replaces files while they are read; each file is complete nevertheless.
if [ -z "$mu_large" ]; then
	tar -cf - -- "$@" || [ $? -eq 1 ]
	exit 0
fi
mu_tmp=$(mu_scratch)
trap 'rm -rf "$mu_tmp"' EXIT
for mu_file; do
	mkdir -p "$mu_tmp/$(dirname -- "$mu_file")"
	if [ -n "$(find "$mu_file" -prune -size +$((mu_cap / 512)))" ]; then
		tail -c "$((mu_cap / 8))" "$mu_file" >"$mu_tmp/$mu_file"
	else
		ln -s "$PWD/$mu_file" "$mu_tmp/$mu_file"
	fi
done
cd "$mu_tmp"
tar -chf - -- "$@" || [ $? -eq 1 ]
