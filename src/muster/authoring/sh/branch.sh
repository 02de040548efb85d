# shellcheck shell=sh
# One file on an agent's branch, in its work dir on its host. Only git's plumbing runs, with no hook, filter or signature of anybody's.
#   read PATH BYTES                                        the file as it is in the work dir
#   show GITDIR COMMIT PATH BYTES                          the file of a commit
#   accept GITDIR BRANCH BASE PATH MODE MESSAGE            the text on stdin becomes the file: a commit of BASE with it, on top of the branch.
#       What the work dir had in its place is committed before. Prints the commit that holds that, and the new one.
set -eu
verb=$1
shift

die() {
	printf '%s\n' "$*" >&2
	exit 1
}

# No link leads out of the work dir.
inside() {
	case $1 in */*) folder=${1%/*} ;; *) folder=. ;; esac
	top=$(pwd -P)
	folder=$(cd -P "$folder" 2>/dev/null && pwd -P) || die "there is no folder of $1"
	case $folder/ in "$top"/*) ;; *) die "$1 leads out of the work dir" ;; esac
}

plumb() {
	GIT_CONFIG_NOSYSTEM=1 git --git-dir="$gitdir" -c core.hooksPath=/dev/null -c core.fsmonitor=false -c core.bare=false \
		-c core.worktree="$(pwd -P)" "$@"
}

# COMMIT-OR-TREE BLOB PARENT MESSAGE: a commit of that tree with the file in it.
commit() {
	GIT_INDEX_FILE=$scratch/index plumb read-tree "$1"
	GIT_INDEX_FILE=$scratch/index plumb update-index --add --cacheinfo "$mode,$2,$path"
	plumb commit-tree "$(GIT_INDEX_FILE=$scratch/index plumb write-tree)" -p "$3" -m "$4"
}

case $verb in
read)
	inside "$1"
	[ -f "$1" ] && [ ! -h "$1" ] || die "$1 is no file there"
	head -c "$2" "$1"
	;;
show)
	gitdir=$1
	plumb cat-file blob "$2:$3" | head -c "$4"
	;;
accept)
	gitdir=$1 branch=$2 base=$3 path=$4 mode=$5 message=$6
	inside "$path"
	[ "$(plumb symbolic-ref -q HEAD)" = "refs/heads/$branch" ] || die "it is not on its branch $branch"
	scratch=$(mktemp -d)
	trap 'rm -rf "$scratch"' EXIT
	cat >"$scratch/new"
	if ! plumb config user.email >/dev/null 2>&1; then
		export GIT_AUTHOR_NAME=muster GIT_AUTHOR_EMAIL=muster@muster.invalid
		export GIT_COMMITTER_NAME=muster GIT_COMMITTER_EMAIL=muster@muster.invalid
	fi
	old=$(plumb rev-parse --verify HEAD)
	held=$old
	if [ -f "$path" ] && [ ! -h "$path" ]; then
		blob=$(plumb hash-object -w --no-filters --stdin <"$path")
		[ "$(plumb rev-parse -q --verify "$old:$path" || :)" = "$blob" ] || held=$(commit "$old" "$blob" "$old" "Examples that were proposed for $path")
	fi
	blob=$(plumb hash-object -w --no-filters --stdin <"$scratch/new")
	new=$(commit "$base" "$blob" "$held" "$message")
	plumb update-ref -m "muster tutorial fill" "refs/heads/$branch" "$new" "$old"
	plumb update-index --add --cacheinfo "$mode,$blob,$path"
	rm -f "$path"
	cat "$scratch/new" >"$path"
	[ "$mode" != 100755 ] || chmod +x "$path"
	printf '%s\n' "$held" "$new"
	;;
esac
