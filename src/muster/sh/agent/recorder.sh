# shellcheck shell=sh
# recorder.sh DIR CAP CMD [ARGS...]: run CMD on this terminal and record what it shows.
#
#   DIR/N.raw     what the terminal got, between script's own first and last line; at most CAP bytes
#   DIR/N.timing  script's advanced timing log (output, resizes, exit code); at most CAP bytes
#   DIR/N.meta    one JSON line; its "end" and "exit" are null while CMD runs
#
# N is the next free number. The exit code is CMD's own, 128+n for a signal. TERM, HUP, INT and QUIT go
# on to CMD; what then still lives on its terminal gets TERM after 2 s and KILL after 5 s.
# Three processes: this shell reads the timing, `tee` the screen, `script` holds the terminal. Both readers go
# on reading when the cap or the disk is full, so a recording never stops CMD. Where `script` cannot do
# this, CMD runs unrecorded.
#
# script and tee do not carry MUSTER_AGENT_ID, so who ends an agent by that mark finds CMD and this shell, not them:
# script, when it gets a TERM itself, waits 2 s and says 0.
# Names begin with _mr_: a variable that CMD's environment also has would reach it changed.

_mr_plain() {
    umask "$_mr_mask"
    exec "$@"
}

# Each word in single quotes, for a shell to read back.
_mr_quote() {
    for _mr_arg do
        case $_mr_arg in
        *\'*) printf '%s\n' "$_mr_arg" | LC_ALL=C sed "s/'/'\\\\''/g; 1s/^/ '/; \$s/\$/' \\\\/" ;;
        *) printf " '%s'" "$_mr_arg" ;;
        esac
    done
}

_mr_write_meta() {
    printf '{"v":1,"start":%s,"cols":%s,"rows":%s,"term":"%s","cap":%s,"end":%s,"exit":%s,"cut":%s}\n' \
        "$_mr_start" "$_mr_cols" "$_mr_rows" "$_mr_term" "$_mr_cap" "$1" "$2" "$3"
}

# The living processes on CMD's terminal: its session, whose id is CMD's process id.
_mr_members() {
    cat /proc/[0-9]*/stat 2>/dev/null | LC_ALL=C awk -v session="$_mr_pid" '{
        pid = $1
        sub(/^.*\) /, "")
        if ($4 == session && $1 !~ /^[ZX]/) printf "%d ", pid
    }'
}

_mr_clear() {
    trap '' HUP INT QUIT TERM
    trap - CHLD
    _mr_tick=0
    while [ "$_mr_tick" -le 40 ]; do
        _mr_left=$(_mr_members)
        [ -n "$_mr_left" ] || break
        # shellcheck disable=SC2086  # a list of process ids
        case $_mr_tick in
        10) kill -TERM $_mr_left ;;
        25 | 30 | 35 | 40) kill -KILL $_mr_left ;;
        esac
        _mr_tick=$((_mr_tick + 1))
        sleep 0.2
    done
    # script misses the end of a CMD that was stopped and ended at once when continued, and would wait for ever.
    for _mr_tick in 1 2 3 4 5 6 7 8 9 10; do
        IFS= read -r _mr_stat <"/proc/$_mr_script/stat" || return 0
        case ${_mr_stat##*) } in Z*) return 0 ;; esac
        sleep 0.2
    done
    kill -KILL "$_mr_script"
}

_mr_start_clear() {
    if [ -n "$_mr_pid" ] && [ -z "$_mr_clearing" ]; then
        _mr_clear </dev/null >/dev/null 2>&1 5<&- 8<&- &
        _mr_clearing=$!
    fi
}

_mr_forward() {
    _mr_woke=1 _mr_told=$1
    if [ -n "$_mr_pid" ]; then
        kill -s "$1" "$_mr_pid" 2>/dev/null || :
        _mr_start_clear
    fi
}

# script stops itself when CMD does, as an interactive shell would expect of it; here nobody would continue it.
# shellcheck disable=SC2317  # called by a trap
_mr_continue() {
    _mr_woke=1
    [ -z "$_mr_script" ] || kill -s CONT "$_mr_script" 2>/dev/null || :
}

# One line of the timing log: kept up to the cap, and followed to know CMD's life.
_mr_take() {
    case $1 in
    'O '*)
        _mr_count=${1##* }
        case $_mr_count in '' | *[!0-9]*) _mr_count=0 ;; esac
        _mr_shown=$((_mr_shown + _mr_count))
        [ "$_mr_shown" -le "$_mr_cap" ] || _mr_cut=true
        ;;
    'P '*)
        _mr_pid=${1#P }
        [ -z "$_mr_told" ] || _mr_forward "$_mr_told"
        return
        ;;
    'H '*' EXIT_CODE '*)
        _mr_exit=${_mr_hit:-${1##* }}
        case $_mr_exit in *[!0-9]*) _mr_exit='' ;; esac
        ;;
    'S '*' SIGTERM'*) _mr_hit=143 ;;
    'S '*' SIGINT'*) _mr_hit=130 ;;
    'S '*' SIGQUIT'*) _mr_hit=131 ;;
    esac
    _mr_size=$((_mr_size + ${#1} + 1))
    if [ "$_mr_size" -gt "$_mr_cap" ]; then
        _mr_cut=true
    elif [ "$_mr_cut" = false ]; then
        printf '%s\n' "$1" 2>/dev/null || _mr_cut=true
    fi
}

_mr_dir=$1 _mr_cap=$2
shift 2
_mr_mask=$(umask)
umask 077

# A background command of a shell ignores INT; env undoes that. setpriv ends script, and so CMD, if this shell is killed.
_mr_run='env -u MUSTER_AGENT_ID --default-signal=INT,QUIT setpriv --pdeathsig TERM'
if ! [ -t 0 ] || ! [ -t 1 ] || ! [ -e /proc/self/fd/0 ]; then _mr_plain "$@"; fi
# shellcheck disable=SC2086  # a command in words
case $($_mr_run script --help 2>/dev/null </dev/null) in *--log-timing*) ;; *) _mr_plain "$@" ;; esac

mkdir -p "$_mr_dir" 2>/dev/null || _mr_plain "$@"
_mr_n=1
while ! (set -C && : >"$_mr_dir/$_mr_n.meta") 2>/dev/null; do
    [ -e "$_mr_dir/$_mr_n.meta" ] || _mr_plain "$@"
    _mr_n=$((_mr_n + 1))
done
_mr_base=$_mr_dir/$_mr_n
(: >"$_mr_base.raw" && : >"$_mr_base.timing") 2>/dev/null || _mr_plain "$@"

_mr_start=$(date +%s)
_mr_rows=$(stty size 2>/dev/null) || _mr_rows='0 0'
_mr_cols=${_mr_rows#* } _mr_rows=${_mr_rows% *}
case ${TERM:-} in '' | *[!A-Za-z0-9._+-]*) _mr_term='' ;; *) _mr_term=$TERM ;; esac
(_mr_write_meta null null false >"$_mr_base.meta") 2>/dev/null || :

# Two pipes without names: a FIFO opened both ways does not block, and is unlinked at once.
_mr_fifo=$_mr_dir/.fifo.$$
mkfifo "$_mr_fifo.o" "$_mr_fifo.t" 2>/dev/null || {
    rm -f "$_mr_fifo.o" "$_mr_fifo.t"
    _mr_plain "$@"
}
exec 3<>"$_mr_fifo.o" 4<>"$_mr_fifo.t" 8<&0
rm -f "$_mr_fifo.o" "$_mr_fifo.t"

# script hands `$SHELL -c` a text that it also logs: a constant one. CMD's words come by a pipe of their own, so they
# are exact, of any length, in no file, and in no process list but CMD's.
_mr_back=
for _mr_name in SHELL LC_ALL MUSTER_AGENT_ID; do
    eval "_mr_set=\${$_mr_name+set}"
    if [ -n "$_mr_set" ]; then
        _mr_back="$_mr_back$_mr_name=\$1; export $_mr_name; shift;"
    else
        _mr_back="${_mr_back}unset $_mr_name; shift;"
    fi
done
exec 9<<_MR_END
set --$(_mr_quote "${SHELL-}" "${LC_ALL-}" "${MUSTER_AGENT_ID-}" "$@")

echo P \$\$ >&7
$_mr_back
umask $_mr_mask
exec 6>&- 7>&- 9<&-
exec "\$@"
_MR_END

_mr_pid='' _mr_script='' _mr_clearing='' _mr_told='' _mr_woke='' _mr_exit='' _mr_hit='' _mr_shown=0 _mr_size=0 _mr_cut=false
trap '_mr_forward TERM' TERM
trap '_mr_forward HUP' HUP
trap '_mr_forward INT' INT
trap '_mr_forward QUIT' QUIT
trap _mr_continue CHLD

# Each end is opened while the two-way one is still held, then that is let go: the streams end with script.
# The C locale keeps script and tee small.
(
    trap '' HUP INT QUIT TERM TSTP XFSZ
    exec </proc/self/fd/3 >/dev/null 2>&1 3>&- 4>&- 8<&- 9<&-
    ulimit -f $((_mr_cap / 512))
    unset MUSTER_AGENT_ID
    LC_ALL=C exec tee "$_mr_base.raw"
) &
_mr_tee=$!
# shellcheck disable=SC2086  # a command in words
SHELL=/bin/sh LC_ALL=C $_mr_run script -q -e -f -E always -m advanced -O /proc/self/fd/6 -T /proc/self/fd/7 \
    -c '. /proc/self/fd/9' <&8 6>/proc/self/fd/3 7>/proc/self/fd/4 3>&- 4>&- 8<&- &
_mr_script=$!
exec 5</proc/self/fd/4 3>&- 4>&- 9<&- 8<&-

# A signal makes `read` fail like the end does; only a second failure is the end.
_mr_kept=''
while :; do
    _mr_line=''
    if IFS= read -r _mr_line; then
        _mr_take "$_mr_kept$_mr_line"
        _mr_kept=''
    elif [ -n "$_mr_woke" ]; then
        _mr_woke='' _mr_kept=$_mr_kept$_mr_line
    else
        break
    fi
done <&5 >"$_mr_base.timing"

trap '_mr_told=1' HUP INT QUIT TERM
trap - CHLD
_mr_code=0
wait "$_mr_script" || _mr_code=$?
if [ -z "$_mr_exit" ] || [ -n "$_mr_told" ]; then _mr_start_clear; fi
[ -z "$_mr_clearing" ] || wait "$_mr_clearing" || :
wait "$_mr_tee" || :
(_mr_write_meta "$(date +%s)" "${_mr_exit:-$_mr_code}" "$_mr_cut" >"$_mr_base.meta.new") 2>/dev/null &&
    mv "$_mr_base.meta.new" "$_mr_base.meta"
exit "${_mr_exit:-$_mr_code}"
