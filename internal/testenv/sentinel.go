package testenv

import (
	"fmt"
	"net"
	"strings"
	"testing"
)

// MasterName is what the Sentinels of StartSentinels call their master.
const MasterName = "main"

// Sentinels watch a master and make one of its replicas the master when it is
// gone.
type Sentinels struct{ nodes []*Redis }

// StartSentinels starts n Sentinels for master, whose replicas must be running
// already, and returns them once they know each other and the replicas. A master
// that does not answer for half a second is down for them.
func StartSentinels(tb testing.TB, master *Redis, n int) *Sentinels {
	tb.Helper()
	host, port, _ := net.SplitHostPort(master.Addr)
	s := &Sentinels{}
	for i := range n {
		// The first one sees it first: of Sentinels that ask for votes at the same
		// time none may win, and they wait for seconds before they ask again. To be
		// elected takes a majority whatever the quorum.
		s.nodes = append(s.nodes, startProgram(tb, "redis-sentinel", []string{
			fmt.Sprintf("sentinel monitor %s %s %s 1", MasterName, host, port),
			fmt.Sprintf("sentinel down-after-milliseconds %s %d", MasterName, 500+1000*i),
			"sentinel failover-timeout " + MasterName + " 3000",
		}))
	}
	for _, node := range s.nodes {
		// By default they look around every ten, two and one seconds.
		node.must("SENTINEL", "DEBUG", "INFO-PERIOD", "200", "PUBLISH-PERIOD", "100", "ASK-PERIOD", "100", "PING-PERIOD", "100")
	}
	replicas := 0
	for line := range strings.SplitSeq(master.Command("INFO", "replication"), "\r\n") {
		if strings.Contains(line, "state=online") {
			replicas++
		}
	}
	for _, node := range s.nodes {
		node.Await(fmt.Sprintf("status=ok,address=%s,slaves=%d,sentinels=%d", master.Addr, replicas, n), "INFO", "sentinel")
		// Four such periods after a replica has become a master, Sentinels that have
		// not heard why make it a replica again.
		node.must("SENTINEL", "DEBUG", "PUBLISH-PERIOD", "2000")
	}
	return s
}

// URL names the master as the redis driver takes it.
func (s *Sentinels) URL() string {
	addrs := make([]string, len(s.nodes))
	for i, node := range s.nodes {
		addrs[i] = node.Addr
	}
	return "redis+sentinel://" + strings.Join(addrs, ",") + "/0?master=" + MasterName
}

// FailOver has the Sentinels make a replica the master although the master is well.
func (s *Sentinels) FailOver() {
	s.nodes[0].t.Helper()
	s.nodes[0].must("SENTINEL", "FAILOVER", MasterName)
}

// AwaitMaster waits until all Sentinels have the server at addr as the master.
func (s *Sentinels) AwaitMaster(addr string) {
	for _, node := range s.nodes {
		node.t.Helper()
		node.Await("address="+addr+",", "INFO", "sentinel")
	}
}
