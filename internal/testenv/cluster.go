package testenv

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// slots is how many hash slots a Redis Cluster has.
const slots = 16384

// StartRedisCluster starts a Redis Cluster of n masters on loopback that share
// the slots, and returns its nodes once all of them serve. It needs Redis 7.
func StartRedisCluster(tb testing.TB, n int, config ...string) []*Redis {
	tb.Helper()
	nodes := make([]*Redis, n)
	buses := make([]string, n)
	for i := range nodes {
		buses[i] = strconv.Itoa(freePort(tb))
		nodes[i] = StartRedis(tb, append([]string{"cluster-enabled yes", "cluster-port " + buses[i], "cluster-node-timeout 5000"}, config...)...)
		first, last := i*slots/n, (i+1)*slots/n-1
		nodes[i].must("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last))
		// Nodes of one epoch would first have to agree on who goes on with it.
		nodes[i].must("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
	}
	for i, node := range nodes[1:] {
		host, port, _ := net.SplitHostPort(node.Addr)
		nodes[0].must("CLUSTER", "MEET", host, port, buses[i+1])
	}
	deadline := time.Now().Add(patience)
	for _, node := range nodes {
		for !node.serves(n) {
			if time.Now().After(deadline) {
				tb.Fatalf("testenv: the cluster is not ready after %s:\n%s", patience, node.Command("CLUSTER", "INFO"))
			}
			<-time.After(20 * time.Millisecond)
		}
	}
	return nodes
}

// serves reports whether the node knows n masters and all slots.
func (r *Redis) serves(n int) bool {
	info := r.Command("CLUSTER", "INFO")
	return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, fmt.Sprintf("cluster_size:%d", n))
}

func (r *Redis) must(args ...string) {
	r.t.Helper()
	if got := r.Command(args...); got != "+OK" {
		r.t.Fatalf("testenv: redis %v answered %s", args, got)
	}
}
