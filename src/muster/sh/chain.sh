# shellcheck shell=sh
# chain MARK LIB {READS NAME COUNT TEXT WORD…}…: run several files of this folder one after the other, up to the first that fails.
# Each is LIB with its TEXT behind, and gets the state folder and COUNT words. The one for which READS is not empty has stdin.
# Behind what each prints comes a line `MARK CODE`, and behind what it prints to stderr a line `MARK`.
mu_home=$1 mu_mark=$2 mu_lib=$3
shift 3
while [ $# -gt 0 ]; do
	mu_reads=$1 mu_name=$2 mu_count=$3 mu_text=$4
	shift 4
	mu_number=0 mu_words=
	while [ "$mu_number" -lt "$mu_count" ]; do
		mu_number=$((mu_number + 1))
		mu_words="$mu_words \"\${$mu_number}\""
	done
	mu_code=0
	if [ -n "$mu_reads" ]; then
		eval "sh -c \"\$mu_lib\$mu_text\" \"\$mu_name\" \"\$mu_home\" $mu_words" || mu_code=$?
	else
		eval "sh -c \"\$mu_lib\$mu_text\" \"\$mu_name\" \"\$mu_home\" $mu_words" </dev/null || mu_code=$?
	fi
	printf '\n%s %s\n' "$mu_mark" "$mu_code"
	printf '\n%s\n' "$mu_mark" >&2
	[ "$mu_code" = 0 ] || exit "$mu_code"
	shift "$mu_count"
done
