#!/bin/bash
# One node of a real cluster: a set of mount, network, PID, UTS, IPC and cgroup namespaces. It is called twice, by
# tests/src/clusters, which gives everything in the environment:
#
#   node.sh enter NAMESPACE   in the machine's namespaces: goes into the node's groups, then into namespaces of its own
#   node.sh run               PID 1 of the node: makes its root, then keeps its programs running until it is ended
#
#   NODE BIN RUNTIME          its name; the folder of the programs; the container runtime
#   DIR CLUSTER_DIR IMAGES    its own folder, its cluster's (conf/, pki/), and the one with images to import
#   CGROUPS CGROUP_DIRS       its groups' hierarchies, and their folders as this machine sees them
#   NODE_IPS API              its addresses, with commas; where the API server listens
#   POD_NETS SVC_NETS         the cluster's pod and service prefixes, with commas
#   POD_CIDRS DNS_IP          the node's own pod prefixes, with commas; the address of the cluster's DNS
#   MTU PROXY_MODE            of its devices, in bytes; kube-proxy's mode
#   CONTROL                   1 on the node with the control plane
set -euo pipefail
: "${NODE:?this is called by tests/src/clusters, never by hand}" "${DIR:?}" "${CLUSTER_DIR:?}" "${BIN:?}"

if [ "$1" = enter ]; then
    for group in $CGROUP_DIRS; do echo $$ >"$group/cgroup.procs"; done
    exec nsenter --net="/run/netns/$2" unshare --mount --uts --ipc --cgroup --pid --fork --kill-child \
        --propagation private bash "$0" run
fi
# Everything below changes files of a machine: only ever those of a node's own root.
[ $$ -eq 1 ] || exit 1

# --- a root of our own: the machine's root below, memory above, disk for /var ----------------------------------
mount --make-rprivate /
read -r pid _ </proc/self/stat # /proc is still the machine's: its idea of our ID
mkdir -p "$DIR/root"
mount -t tmpfs -o mode=755 node "$DIR/root"
root=$DIR/root/merged
mkdir -p "$DIR/root/upper" "$DIR/root/work" "$root"
mount -t overlay -o "lowerdir=/,upperdir=$DIR/root/upper,workdir=$DIR/root/work" node "$root"
mkdir -p "$root/opt/lab/bin" "$root/opt/cni/bin" "$root/etc/cni/net.d" "$root/old"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t tmpfs -o mode=755 tmpfs "$root/sys/fs/cgroup"
for hierarchy in $CGROUPS; do # seen from the node's own group down
    folder=$root/sys/fs/cgroup/${hierarchy#name=}
    mkdir "$folder"
    options=$hierarchy
    [ "$hierarchy" = "${hierarchy#name=}" ] || options=none,$hierarchy
    mount -t cgroup -o "$options" cgroup "$folder"
done
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mkdir -p "$DIR"/var/{lib/kubelet,lib/containerd,lib/cni,lib/imported,log/pods,log/containers,tmp} "$DIR/log"
ln -sfn /run "$DIR/var/run"
mount --bind "$DIR/var" "$root/var" # not the overlay: containerd stacks overlays of its own here
for shared in "$CLUSTER_DIR" "$IMAGES" "$DIR/log"; do # the same paths inside as outside
    mkdir -p "$root$shared"
    mount --bind "$shared" "$root$shared"
done
mount --bind "$BIN" "$root/opt/lab/bin"
echo "$pid" >"$DIR/pid.new"
mv "$DIR/pid.new" "$DIR/pid"
cd "$root"
pivot_root . old
cd /
umount -l /old
rmdir /old
mount --make-rshared / # or Bidirectional mounts of pods go nowhere

# The kubelet sets these kernel-wide values (or refuses to start): let it find them as it wants them, in files of ours,
# and leave the machine's alone.
mkdir -p /run/sysctl
while read -r name value; do
    file=/run/sysctl/${name##*/}
    echo "$value" >"$file"
    mount --bind "$file" "/proc/sys/$name"
done <<END
vm/overcommit_memory 1
vm/panic_on_oom 0
kernel/panic 10
kernel/panic_on_oops 1
kernel/keys/root_maxkeys 1000000
kernel/keys/root_maxbytes 25000000
END

hostname "$NODE"
echo "127.0.0.1 localhost" >/etc/hosts
for ip in ${NODE_IPS//,/ }; do echo "$ip $NODE" >>/etc/hosts; done
rm -f /etc/resolv.conf
: >/etc/resolv.conf # no names from outside
export PATH=/opt/lab/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
ln -sf /opt/lab/bin/cni/* /opt/cni/bin/

# --- the network: what pods send out of the cluster leaves from the node's address -------------------------------
sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 \
    net.bridge.bridge-nf-call-iptables=1 net.bridge.bridge-nf-call-ip6tables=1
masquerade() { # masquerade FAMILY PODS EXCEPTED
    nft -f - <<END
table $1 lab-masq {
  chain post {
    type nat hook postrouting priority srcnat + 10;
    $1 saddr $2 $1 daddr != { $2, $3 } oifname "eth0" masquerade
  }
}
END
}
for net in ${POD_NETS//,/ }; do
    case $net in
    *:*) masquerade ip6 "$net" ff00::/8 ;;
    *) masquerade ip "$net" 224.0.0.0/4 ;;
    esac
done
ranges='' routes=''
for net in ${POD_CIDRS//,/ }; do
    case $net in
    *:*) everywhere=::/0 ;;
    *) everywhere=0.0.0.0/0 ;;
    esac
    ranges="$ranges${ranges:+, }[{ \"subnet\": \"$net\" }]"
    routes="$routes${routes:+, }{ \"dst\": \"$everywhere\" }"
done
cat >/etc/cni/net.d/10-lab.conflist <<END
{ "cniVersion": "1.0.0", "name": "lab", "plugins": [
  { "type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true, "mtu": $MTU,
    "ipam": { "type": "host-local", "ranges": [$ranges], "routes": [$routes] } },
  { "type": "portmap", "capabilities": { "portMappings": true }, "backend": "nftables" } ] }
END

# --- programs ---------------------------------------------------------------------------------------------------
keep() { # keep NAME COMMAND...: starts it again whenever it ends
    local log=$DIR/log/$1.log
    shift
    (while :; do
        "$@" >>"$log" 2>&1 </dev/null || true
        echo "--- it ended" >>"$log"
        sleep 1
    done) &
}
conf=$CLUSTER_DIR/conf pki=$CLUSTER_DIR/pki

export GOGC=200 # half as much garbage collection as by default, for memory
if [ "$CONTROL" = 1 ]; then
    # Who of a cluster set asks for what: tests compare it with the rights that were given.
    cat >/etc/audit-lab.yaml <<END
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Metadata
    userGroups: ["system:serviceaccounts:submariner-operator", "system:serviceaccounts:submariner-k8s-broker"]
  - level: None
END
    # The etcd of the server beside it: no port, and its data outlive the node's power.
    keep kube-apiserver trieste-kubernetes serve "$pki" "$API" --bind-address=:: --secure-port=6443 \
        --kubelet-client-certificate="$pki/apiserver-kubelet.crt" --kubelet-client-key="$pki/apiserver-kubelet.key" \
        --kubelet-preferred-address-types=InternalIP --service-cluster-ip-range="$SVC_NETS" \
        --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --allow-privileged --profiling=false \
        --audit-policy-file=/etc/audit-lab.yaml --audit-log-path="$DIR/log/audit.log"
fi

cat >/etc/containerd-lab.toml <<END
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "localhost/trieste-pause:lab"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true # without CAP_SYS_RESOURCE no score can be lowered, and no sandbox would start
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["/opt/cni/bin"]
  conf_dir = "/etc/cni/net.d"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  BinaryName = "$RUNTIME"
  SystemdCgroup = false
END
cat >/etc/kubelet-lab.yaml <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
authentication: { anonymous: { enabled: false }, webhook: { enabled: true }, x509: { clientCAFile: $pki/ca.crt } }
authorization: { mode: Webhook }
clusterDomain: cluster.local
clusterDNS: ["$DNS_IP"]
resolvConf: /etc/resolv.conf
failSwapOn: false
oomScoreAdj: 0
makeIPTablesUtilChains: false
evictionHard: { memory.available: "1Mi", nodefs.available: "0%", nodefs.inodesFree: "0%", imagefs.available: "0%" }
imageGCHighThresholdPercent: 100
nodeStatusUpdateFrequency: 2s
nodeStatusReportFrequency: 1m # what has not changed; by default as often as it is looked at, and all who watch nodes hear it
nodeLeaseDurationSeconds: 20
syncFrequency: 5s
END
cat >/etc/kube-proxy-lab.yaml <<END
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: { kubeconfig: $conf/kube-proxy.conf }
mode: $PROXY_MODE
clusterCIDR: "$POD_NETS"
hostnameOverride: $NODE
oomScoreAdj: 0
conntrack: { maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s } # read-only in a namespace
END

# What one containerd has imported for all nodes (tests/src/clusters/images.rs).
until [ -e /var/lib/imported/given ]; do sleep 0.1; done
keep containerd containerd -c /etc/containerd-lab.toml
until ctr version >/dev/null 2>&1; do sleep 0.1; done
for archive in "$IMAGES"/*.tar; do
    mark=/var/lib/imported/${archive##*/}
    [ ! "$mark" -nt "$archive" ] || continue
    ctr -n k8s.io images import "$archive" >>"$DIR/log/images.log" 2>&1
    touch "$mark"
done
until (exec 3<>"/dev/tcp/$API/6443") 2>/dev/null; do sleep 0.1; done
if [ "$CONTROL" = 1 ]; then # one that comes before its API server waits 10 s
    keep kube-controller-manager trieste-kubernetes kube-controller-manager \
        --kubeconfig="$conf/kube-controller-manager.conf" --service-account-private-key-file="$pki/service-account.key" \
        --root-ca-file="$pki/ca.crt" --use-service-account-credentials --cluster-signing-cert-file="$pki/ca.crt" \
        --cluster-signing-key-file="$pki/ca.key" --allocate-node-cidrs=false --leader-elect=false \
        --node-monitor-period=2s --node-monitor-grace-period=20s
    keep kube-scheduler trieste-kubernetes kube-scheduler --kubeconfig="$conf/kube-scheduler.conf" --leader-elect=false
fi
keep kubelet trieste-kubernetes kubelet --config=/etc/kubelet-lab.yaml --kubeconfig="$conf/$NODE.conf" \
    --hostname-override="$NODE" --node-ip="$NODE_IPS" --v=1
keep kube-proxy trieste-kubernetes kube-proxy --config=/etc/kube-proxy-lab.yaml
trap 'exit 0' TERM INT # PID 1 leaves: the kernel ends all that ran on this node
while :; do wait -n || sleep 1; done
