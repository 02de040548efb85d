# shellcheck shell=sh
# files WORKDIR PATTERN…: send plain files of a work dir as a tar; a folder means its contents. Links are not followed.
[ ! -h "$1" ] || die 1 "the work dir was replaced by a link: $1"
cd "$1" || die 1 "the work dir is gone: $1"
shift
mu_tmp=$(mu_scratch)
trap 'rm -rf "$mu_tmp"' EXIT
mu_list=$mu_tmp/list
: >"$mu_list"
for mu_pattern; do
	IFS=
	for mu_path in $mu_pattern; do
		case $mu_path in -*) mu_path=./$mu_path ;; esac
		[ -e "$mu_path" ] && [ ! -h "$mu_path" ] || continue
		find "$mu_path" -name .git -prune -o -type f -print >>"$mu_list"
	done
	unset IFS
done
# Without a match nothing is sent; names with newlines cannot be sent.
[ ! -s "$mu_list" ] || tar -cf - -T "$mu_list"
