# shellcheck shell=sh
# exec ID CWD CMD…: run a command in the agent's work dir with the agent's variables. CWD is empty if only the host knows it.
mu_dir=$mu_home/agents/$1 mu_cwd=$2
shift 2
[ -n "$mu_cwd" ] || mu_cwd=$(cat "$mu_dir/cwd") || die 3 "the agent has no work dir"
cd "$mu_cwd" || die 1 "the work dir is gone: $mu_cwd"
# The agent may have replaced its work dir by a link.
mu_work=$(cd -P "$mu_home/work" && pwd -P) || mu_work=$mu_home/work
case $mu_cwd in
"$mu_home/work/"* | "$mu_work"/*)
	case $(pwd -P)/ in "$mu_work/${mu_dir##*/}"/*) ;; *) die 1 "the work dir leads to $(pwd -P)" ;; esac
	;;
esac
mu_users_locale
if [ -f "$mu_dir/env" ]; then
	# shellcheck disable=SC1091
	. "$mu_dir/env"
fi
set +e
umask "$mu_umask"
exec "$@"
