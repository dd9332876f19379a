#!/bin/sh
# cluster.sh - a real Slurm cluster on this one machine, for the tests.
#
# usage: cluster.sh start | stop | status | run COMMAND...
# or sourced, for cluster_start, cluster_stop, cluster_status, cluster_run.
#
# One PID namespace holds everything: munged, slurmctld ("ctl") and a bridge.  Each of the nodes
# n1..n4 is a further network, mount and UTS namespace with its own address, host name, temporary
# directory and slurmd.  The file system is shared, as on a cluster.  Nothing is left behind when
# the first process of the PID namespace ends: the kernel kills the rest and drops the
# namespaces, and with them the bridge, the addresses and the mounts.
#
# n3 and n4 claim two GPUs each (partition "gpu"), which no device backs: enough to see what
# Slurm hands to a job.  Exit code 77: cannot run here, and the reason on stderr.

CLUSTER=${CLUSTER:-${TMPDIR:-/tmp}/trireme-cluster-$(id -u)}
CLUSTER_NODES=${CLUSTER_NODES:-4}
CLUSTER_LIFE=${CLUSTER_LIFE:-1800} # seconds after which a forgotten cluster ends by itself
CLUSTER_NET=10.77.0
PATH=$PATH:/usr/sbin:/sbin

cluster_skip() {
    echo "$*" >&2
    return 77
}

# Can this machine hold the cluster?
cluster_check() {
    [ "$(id -u)" = 0 ] || { cluster_skip "the Slurm cluster needs root"; return 77; }
    for tool in munged slurmctld slurmd sbatch srun scontrol unshare nsenter ip mpicc; do
        command -v $tool >/dev/null ||
            { cluster_skip "$tool is missing (jobs/packages.sh slurm)"; return 77; }
    done
    find /usr/lib -name 'mpi_pmix*.so' -path '*slurm*' 2>/dev/null | grep -q . ||
        { cluster_skip "this Slurm has no PMIx plugin"; return 77; }
    unshare --mount --uts --ipc --net --pid --fork --mount-proc \
        ip link add br0 type bridge 2>/dev/null ||
        { cluster_skip "namespaces or bridges are not allowed here"; return 77; }
}

cluster_pid() {
    cat "$CLUSTER/pid" 2>/dev/null
}

cluster_alive() {
    pid=$(cluster_pid) && [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null &&
        grep -q "$CLUSTER" "/proc/$pid/cmdline" 2>/dev/null
}

# Run a command on the login node, in the current directory.
cluster_run() {
    cluster_alive || { echo "the cluster is not running" >&2; return 1; }
    SLURM_CONF=$CLUSTER/slurm.conf nsenter --target "$(cluster_pid)" \
        --mount --uts --ipc --net --pid sh -c 'cd "$0" && exec "$@"' "$PWD" "$@"
}

cluster_configure() {
    memory=$(awk '/^MemTotal/ { print int($2 / 1024 * 0.9) }' /proc/meminfo)
    head -c 1024 /dev/urandom >"$CLUSTER/munge.key"
    chmod 600 "$CLUSTER/munge.key"
    {
        echo "127.0.0.1 localhost"
        echo "$CLUSTER_NET.1 ctl"
        for i in $(seq "$CLUSTER_NODES"); do echo "$CLUSTER_NET.$((10 + i)) n$i"; done
    } >"$CLUSTER/hosts"
    # cred_expire is also what a requeued job waits before it starts again.
    cat >"$CLUSTER/slurm.conf" <<END
ClusterName=trireme
SlurmctldHost=ctl
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$CLUSTER/munge.socket,cred_expire=5
CryptoType=crypto/munge
StateSaveLocation=$CLUSTER/state
SlurmdSpoolDir=$CLUSTER/spool-%n
TmpFS=$CLUSTER/tmp
SlurmctldPidFile=$CLUSTER/slurmctld.pid
SlurmdPidFile=$CLUSTER/slurmd-%n.pid
SlurmctldLogFile=$CLUSTER/log/slurmctld
SlurmdLogFile=$CLUSTER/log/slurmd-%n
MpiDefault=pmix
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=2,batch_sched_delay=0,sched_min_interval=100000
ReturnToService=2
JobRequeue=1
KillWait=5
MinJobAge=3600
GresTypes=gpu
NodeName=n[1-2] CPUs=2 RealMemory=$memory State=UNKNOWN
NodeName=n[3-$CLUSTER_NODES] CPUs=2 RealMemory=$memory Gres=gpu:2 State=UNKNOWN
PartitionName=cpu Nodes=n[1-2] Default=YES MaxTime=INFINITE State=UP
PartitionName=gpu Nodes=n[3-$CLUSTER_NODES] MaxTime=INFINITE State=UP
END
    echo "NodeName=n[3-$CLUSTER_NODES] Name=gpu File=$CLUSTER/gpu[0-1]" >"$CLUSTER/gres.conf"
    mknod "$CLUSTER/gpu0" c 1 3 && mknod "$CLUSTER/gpu1" c 1 3
    # slurmd uses no control groups.  A newer one (24.11) also has to be told not to look for them, which
    # an older one (22.05) does not understand.
    case $(slurmd -V) in
    *' 2'[0-2].*) : >"$CLUSTER/cgroup.conf" ;;
    *) echo "CgroupPlugin=disabled" >"$CLUSTER/cgroup.conf" ;;
    esac
}

cluster_start() {
    cluster_alive && return 0
    cluster_check || return 77
    if [ ${#CLUSTER} -gt 70 ]; then # 107 with the names of PMIx's sockets
        echo "the name of the directory CLUSTER is too long for sockets: $CLUSTER" >&2
        return 1
    fi
    if ! [ "$CLUSTER_NODES" -ge 3 ] 2>/dev/null; then
        echo "CLUSTER_NODES must be at least 3: n1 and n2 have no GPUs, n3 and on have two" >&2
        return 1
    fi
    rm -rf "$CLUSTER"
    mkdir -p "$CLUSTER/log" "$CLUSTER/state" "$CLUSTER/tmp" || return 1
    chmod 755 "$CLUSTER"
    cluster_configure
    setsid unshare --mount --uts --ipc --net --pid --fork --kill-child --mount-proc \
        sh "$CLUSTER_SELF" inside "$CLUSTER" "$CLUSTER_NODES" "$CLUSTER_LIFE" \
        >"$CLUSTER/log/start" 2>&1 </dev/null &
    holder=$!
    for _ in $(seq 100); do
        pid=$(grep -l "^PPid:[[:space:]]*$holder\$" /proc/[0-9]*/status 2>/dev/null) && break
        sleep 0.1
    done
    pid=${pid#/proc/}
    echo "${pid%/status}" >"$CLUSTER/pid"
    for _ in $(seq 150); do
        cluster_alive || break
        [ "$(cluster_run sinfo -h -N -t idle -o %n 2>/dev/null | sort -u | wc -l)" = \
            "$CLUSTER_NODES" ] && return 0
        sleep 0.2
    done
    echo "the Slurm cluster did not start:" >&2
    tail -n 5 "$CLUSTER"/log/* >&2
    cluster_stop
    return 1
}

cluster_stop() {
    if cluster_alive; then
        pid=$(cluster_pid)
        kill -KILL "$pid"
        while [ -e "/proc/$pid" ]; do sleep 0.1; done
    fi
    rm -rf "$CLUSTER"
}

cluster_status() {
    cluster_alive || { echo "not running"; return 1; }
    cluster_run sinfo -N -l
}

# The first process of the PID namespace.
cluster_inside() {
    hostname ctl
    mount --bind "$CLUSTER/hosts" /etc/hosts
    ip link set lo up
    ip link add br0 type bridge
    ip addr add "$CLUSTER_NET.1/24" dev br0
    ip link set br0 up
    munged --foreground --force --num-threads=2 --key-file="$CLUSTER/munge.key" \
        --socket="$CLUSTER/munge.socket" --pid-file="$CLUSTER/munged.pid" \
        --log-file="$CLUSTER/log/munged" --seed-file="$CLUSTER/munge.seed" &
    until [ -S "$CLUSTER/munge.socket" ]; do sleep 0.1; done
    slurmctld -D -f "$CLUSTER/slurm.conf" &
    for i in $(seq "$CLUSTER_NODES"); do
        unshare --mount --uts --net sh "$CLUSTER_SELF" node "$CLUSTER" "$i" &
    done
    sleep "$CLUSTER_LIFE" &
    wait $!
}

# One node.  The PMIx plugin keeps its sockets in TmpFS, which must therefore differ by node.  Open
# MPI names its shared memory after node and job: two clusters have the same names, and jobs that
# share that memory crash, so each node has its own, as machines do.
cluster_node() {
    hostname "n$1"
    mount -t tmpfs -o size=25% tmpfs /dev/shm
    mkdir -p "$CLUSTER/tmp-n$1" "$CLUSTER/spool-n$1"
    mount --bind "$CLUSTER/tmp-n$1" "$CLUSTER/tmp"
    ip link set lo up
    ip link add eth0 type veth peer name "n$1" netns 1
    nsenter --target 1 --net ip link set "n$1" master br0 up
    ip addr add "$CLUSTER_NET.$((10 + $1))/24" dev eth0
    ip link set eth0 up
    exec slurmd -D -N "n$1" -f "$CLUSTER/slurm.conf"
}

case ${0##*/} in
cluster.sh)
    CLUSTER_SELF=$0
    case ${1:-} in
    start | stop | status) "cluster_$1" ;;
    run) shift && cluster_run "$@" ;;
    inside) CLUSTER=$2 CLUSTER_NODES=$3 CLUSTER_LIFE=$4 && cluster_inside ;;
    node) CLUSTER=$2 && cluster_node "$3" ;;
    *) echo "usage: cluster.sh start | stop | status | run COMMAND..." >&2 && exit 1 ;;
    esac
    ;;
esac
