#!/usr/bin/env bash
# Runs a command with a real HBase cluster at PERCOLATOR_HBASE, and stops the cluster afterwards:
#   scripts/hbase.sh cargo test -p bigtable-hbase
# The cluster is HDFS with three data nodes, ZooKeeper, a master and three region servers: six processes on the
# loopback interface, about 2 GB of memory. Their programs come from Maven's artifacts (scripts/hbase/pom.xml), about
# 220 MB, once.
#   HBASE_SERVERS     the number of region servers (3)
#   HBASE_MASTERS     the number of masters (1): the others wait for the end of the active one
#   HBASE_DATANODES   the number of data nodes with processes of their own (0: three in the name node's process)
#   HBASE_SESSION_MS  how long a silent server counts as alive (40,000)
#   HBASE_RESTART_S   a master, region server or data node that ends is started again so many seconds later
#   HBASE_HDFS_MS     how long a server waits for a silent data node (60,000)
#   HBASE_TLS=1       the servers refuse plain text, and the command has certificates in PERCOLATOR_TLS__*
#   HBASE_PIDS        a directory for a file with the id of each process; the command has it, too
#   KEEP              a directory that keeps the logs
# Ends with 77 where there is no JDK 17, the artifacts cannot be had, or the cluster does not start.
set -euo pipefail

if [ $# -eq 0 ]; then
    sed -n '2,16s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi

root=$(cd "$(dirname "$0")/.." && pwd)
cache=${CARGO_TARGET_DIR:-$root/target}/hbase
session_ms=${HBASE_SESSION_MS:-40000}

skip() {
    echo "SKIPPED: no HBase: $1" >&2
    exit 77
}

command -v java >/dev/null || skip "there is no java (JDK 17 is needed)"
version=$(java -version 2>&1 | sed -n '1s/.*version "\([0-9]*\).*/\1/p')
[ "${version:-0}" -ge 17 ] || skip "java is of version ${version:-unknown}, and 17 is needed"
mkdir -p "$cache"
# The class path is that of the pom: another pom needs another one.
stamp=$cache/classpath.$(cksum <"$root/scripts/hbase/pom.xml" | cut -d' ' -f1)
if ! [ -s "$stamp" ]; then
    command -v mvn >/dev/null || skip "there is no mvn to fetch it with"
    mvn -q -B -f "$root/scripts/hbase/pom.xml" dependency:build-classpath \
        "-Dmdep.outputFile=$stamp.$$" >"$cache/mvn.log" 2>&1 || skip "see $cache/mvn.log"
    mv "$stamp.$$" "$stamp"
fi

work=${KEEP:-$(mktemp -d)}
mkdir -p "$work/conf"
pids=${HBASE_PIDS:-$work/pids}
mkdir -p "$pids"
# Ids of earlier runs are of no process, or of another one.
rm -f "$pids"/{dfs,zookeeper,master-*,region-*,datanode-*}
finish() {
    # Each process ends with the shell that started it, a little later.
    # shellcheck disable=SC2046
    kill -9 $(jobs -p) 2>/dev/null || true
    wait 2>/dev/null || true
    [ -n "${KEEP:-}" ] || rm -rf "$work" 2>/dev/null || { sleep 1 && rm -rf "$work"; }
}
trap finish EXIT

free_ports() {
    python3 - "$1" <<'PYTHON'
import socket, sys
held = [socket.socket() for _ in range(int(sys.argv[1]))]
for one in held:
    one.bind(("127.0.0.1", 0))
print(*(one.getsockname()[1] for one in held))
PYTHON
}
servers=${HBASE_SERVERS:-3} masters=${HBASE_MASTERS:-1}
read -ra ports <<<"$(free_ports $((2 + 2 * (masters + servers))))"
dfs=${ports[0]} zookeeper=${ports[1]}

# Makes an authority, and one certificate for all servers and the client.
make_certificates() {
    command -v openssl >/dev/null || skip "there is no openssl to make certificates with"
    mkdir -p "$work/tls"
    (
        cd "$work/tls"
        openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj "/CN=authority" -keyout authority.key -out authority.pem
        openssl req -newkey rsa:2048 -nodes -subj "/CN=hbase" -keyout key.pem -out request.pem
        openssl x509 -req -in request.pem -CA authority.pem -CAkey authority.key -CAcreateserial -days 2 \
            -extfile <(echo "subjectAltName=IP:127.0.0.1,DNS:localhost,DNS:client.percolator.internal") \
            -out certificate.pem
        cat key.pem certificate.pem >server.pem
    ) 2>"$work/tls.log" || skip "openssl made no certificates: $(tail -n 1 "$work/tls.log")"
    export PERCOLATOR_TLS__AUTHORITY=$work/tls/authority.pem
    export PERCOLATOR_TLS__CERTIFICATE=$work/tls/certificate.pem PERCOLATOR_TLS__KEY=$work/tls/key.pem
}
tls=
if [ -n "${HBASE_TLS:-}" ]; then
    make_certificates
    tls="&tls=true"
fi

property() { echo "<property><name>$1</name><value>$2</value></property>"; }
{
    echo "<configuration>"
    property hbase.cluster.distributed true
    property hbase.rootdir "hdfs://127.0.0.1:$dfs/hbase"
    property fs.defaultFS "hdfs://127.0.0.1:$dfs"
    property hbase.tmp.dir "$work/tmp"
    property hbase.zookeeper.quorum 127.0.0.1
    property hbase.zookeeper.property.clientPort "$zookeeper"
    property hbase.zookeeper.property.clientPortAddress 127.0.0.1
    property hbase.zookeeper.property.dataDir "$work/zookeeper"
    property hbase.zookeeper.property.tickTime 2000
    property zookeeper.session.timeout "$session_ms"
    property hbase.busy.wait.duration 2000
    # A request that waits for the log must never give the wait up.
    property hbase.regionserver.wal.sync.timeout 2147483647
    property hbase.wal.provider asyncfs
    # Otherwise each family of each region takes 2 MB of memory with its first cell.
    property hbase.hregion.memstore.mslab.enabled false
    property dfs.client.socket-timeout "${HBASE_HDFS_MS:-60000}"
    property hbase.procedure.remote.dispatcher.delay.msec 10
    # A region can be split again once the files of its parent are dropped: two minutes by default.
    property hbase.hfile.compaction.discharger.interval 5000
    for of in master regionserver; do
        property hbase.$of.hostname 127.0.0.1
        property hbase.$of.ipc.address 127.0.0.1
        property hbase.$of.info.bindAddress 127.0.0.1
    done
    if [ -n "$tls" ]; then
        property hbase.server.netty.tls.enabled true
        property hbase.server.netty.tls.supportplaintext false
        property hbase.client.netty.tls.enabled true
        property hbase.rpc.tls.keystore.location "$work/tls/server.pem"
        property hbase.rpc.tls.keystore.type PEM
        property hbase.rpc.tls.truststore.location "$work/tls/authority.pem"
        property hbase.rpc.tls.truststore.type PEM
    fi
    echo "</configuration>"
} >"$work/conf/hbase-site.xml"
cp "$work/conf/hbase-site.xml" "$work/conf/core-site.xml"
cp "$root/scripts/hbase/log4j2.properties" "$work/conf/"

# A server without memory would go on with changes that are half done, so it ends, as with bin/hbase.
options=(-Xmx400m -XX:+ExitOnOutOfMemoryError -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Djava.net.preferIPv4Stack=true)
# ZooKeeper's own web server would have a fixed port, which another cluster may have.
options+=(-Dzookeeper.admin.enableServer=false)
options+=(-Dio.netty.tryReflectionSetAccessible=true -cp "$work/conf:$(cat "$stamp")")
for package in java.base/{java.io,java.nio,sun.nio.ch,java.lang,jdk.internal.ref,java.lang.reflect,java.util} \
    java.base/{java.util.concurrent,java.net,jdk.internal.misc} java.security.jgss/sun.security.krb5; do
    options+=(--add-opens "$package=ALL-UNNAMED" --add-exports "$package=ALL-UNNAMED")
done

cat >"$work/process" <<'SCRIPT'
# Runs a process; again and again if a time to its restart is given: NAME RESTART_S COMMAND...
name=$1 restart=$2
shift 2
while :; do
    setpriv --pdeathsig KILL "$@" >>"$work/$name.log" 2>&1 </dev/null &
    echo $! >"$pids/$name"
    wait $! || true
    rm -f "$pids/$name"
    [ -n "$restart" ] || break
    sleep "$restart"
done
SCRIPT
export work pids HBASE_PIDS=$pids
# Starts a process, which ends when this script does.
start() { run "$1" "" "${@:2}"; }
run() {
    # Directories that are kept have logs of earlier runs.
    : >"$work/$1.log"
    (cd "$work" && exec setpriv --pdeathsig KILL "$BASH" process "$1" "$2" java "${options[@]}" "${@:3}") &
}
# Waits until the log of a process has a line; up to 10 seconds for the process, and two minutes for the line.
await() {
    for _ in $(seq 50); do
        [ ! -e "$pids/$1" ] || break
        sleep 0.2
    done
    for _ in $(seq 600); do
        ! grep -q "$2" "$work/$1.log" 2>/dev/null || return 0
        [ -e "$pids/$1" ] || break
        sleep 0.2
    done
    echo "the end of $1's log:" >&2
    tail -n 20 "$work/$1.log" >&2
    skip "$1 ended, or did not start within two minutes"
}

datanodes=${HBASE_DATANODES:-0} inside=3
[ "$datanodes" -eq 0 ] || inside=0
start dfs "$root/scripts/hbase/MiniDfs.java" "$dfs" "$work/dfs" "$inside"
start zookeeper org.apache.hadoop.hbase.zookeeper.HQuorumPeer start
await dfs '^ready'
for ((number = 1; number <= datanodes; number++)); do
    run datanode-$number "${HBASE_RESTART_S:-}" org.apache.hadoop.hdfs.server.datanode.DataNode \
        -D "dfs.datanode.data.dir=$work/datanode-$number" -D dfs.datanode.address=127.0.0.1:0 \
        -D dfs.datanode.ipc.address=127.0.0.1:0 -D dfs.datanode.http.address=127.0.0.1:0
    # A data node that has spoken with the name node has a directory for its blocks.
    joined=
    for _ in $(seq 300); do
        if compgen -G "$work/datanode-$number/current/BP-*" >/dev/null; then
            joined=1
            break
        fi
        sleep 0.2
    done
    if [ -z "$joined" ]; then
        tail -n 20 "$work/datanode-$number.log" >&2
        skip "datanode-$number did not reach the name node within a minute"
    fi
done
# Starts a master by its number.
start_master() {
    run "master-$1" "${HBASE_RESTART_S:-}" org.apache.hadoop.hbase.master.HMaster \
        -D "hbase.master.port=${ports[2 * $1]}" -D "hbase.master.info.port=${ports[1 + 2 * $1]}" start
}
start_master 1
for ((number = 1; number <= servers; number++)); do
    run region-$number "${HBASE_RESTART_S:-}" org.apache.hadoop.hbase.regionserver.HRegionServer \
        -D "hbase.regionserver.port=${ports[2 * (masters + number)]}" \
        -D "hbase.regionserver.info.port=${ports[1 + 2 * (masters + number)]}" start
done
await master-1 'Master has completed initialization'
addresses=127.0.0.1:${ports[2]}
for ((number = 2; number <= masters; number++)); do
    start_master "$number"
    addresses=$addresses,127.0.0.1:${ports[2 * number]}
done

PERCOLATOR_HBASE="hbase://$addresses/percolator?deadline=10s&session=$((session_ms / 1000))s&busy=2s$tls" "$@"
