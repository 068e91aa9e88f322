package testenv_test

import (
	"io"
	"net"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"agentos/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRedisRestart(t *testing.T) {
	t.Parallel()
	for name, config := range map[string][]string{"nothing on disk": nil, "append only": {"appendonly yes", "appendfsync always"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := testenv.StartRedis(t, config...)
			addr := r.Addr
			if got := r.Command("SET", "k", "v"); got != "+OK" {
				t.Fatal(got)
			}
			r.Kill()
			if _, err := net.Dial("tcp", addr); err == nil {
				t.Error("the killed server still answers")
			}
			r.Restart()
			want := "v"
			if config == nil {
				want = "$-1"
			}
			if got := r.Command("GET", "k"); got != want || r.Addr != addr {
				t.Errorf("after the restart k is %q, want %q; address %s", got, want, r.Addr)
			}
			r.Command("RPUSH", "l", "a", "b")
			if got := r.Command("LRANGE", "l", "0", "-1"); got != "a\nb" {
				t.Errorf("list = %q", got)
			}
			if got := r.Command("NOPE"); !strings.HasPrefix(got, "-ERR") {
				t.Errorf("unknown command: %q", got)
			}
			r.Stop()
		})
	}
}

func TestProxy(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t)
	p := testenv.StartProxy(t, r.Addr)
	ask := func(conn net.Conn, command string) (string, error) {
		if _, err := conn.Write([]byte(command + "\r\n")); err != nil {
			return "", err
		}
		buf := make([]byte, 64)
		n, err := conn.Read(buf)
		return string(buf[:n]), err
	}
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", p.Addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	conn := dial()
	if got, err := ask(conn, "INCR n"); got != ":1\r\n" {
		t.Fatalf("%q, %v", got, err)
	}
	lost := p.CutReplies(1)
	if got, err := ask(conn, "INCR n"); err == nil {
		t.Errorf("the answer %q was not lost", got)
	}
	<-lost
	if got, err := ask(dial(), "INCR n"); got != ":3\r\n" {
		t.Errorf("%q, %v; the lost INCR was not executed", got, err)
	}
	p.CutEvery(2)
	first, err1 := ask(dial(), "PING")
	second, err2 := ask(dial(), "PING")
	if (err1 == nil) == (err2 == nil) {
		t.Errorf("of two answers not one was lost: %q %v, %q %v", first, err1, second, err2)
	}
	p.CutEvery(0)
	p.Down()
	if got, err := ask(dial(), "PING"); err == nil {
		t.Errorf("answer %q while down", got)
	}
	p.Up()
	if got, err := ask(dial(), "PING"); got != "+PONG\r\n" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestSentinelsFailOver(t *testing.T) {
	t.Parallel()
	master := testenv.StartRedis(t)
	replica := testenv.StartReplica(t, master)
	s := testenv.StartSentinels(t, master, 3)
	s.AwaitMaster(master.Addr)
	master.Command("SET", "k", "v")
	replica.Await("v", "GET", "k")
	master.Kill()
	s.AwaitMaster(replica.Addr)
	if got := replica.Command("SET", "l", "w"); got != "+OK" {
		t.Errorf("the new master: %s", got)
	}
	if got := replica.Command("GET", "k"); got != "v" {
		t.Errorf("k = %q", got)
	}
}

func TestFrozenAndSpoiled(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t)
	p := testenv.StartProxy(t, r.Addr)
	conn, err := net.Dial("tcp", p.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r.Freeze()
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		t.Fatal(err)
	}
	p.Spoil(1, func(answer []byte) []byte { return answer[:3] })
	r.Thaw()
	if got, err := io.ReadAll(conn); string(got) != "+PO" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestRestartLoading(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t, "appendonly yes", "loading-process-events-interval-bytes 1024")
	r.Command("DEBUG", "POPULATE", "20000", "k", "1000")
	r.Command("BGREWRITEAOF")
	r.Await("aof_rewrite_in_progress:0", "INFO", "persistence")
	r.RestartLoading("key-load-delay 1000")
	if got := r.Command("GET", "k:1"); !strings.HasPrefix(got, "-LOADING") {
		t.Errorf("GET while loading: %.40q", got)
	}
	r.Command("CONFIG", "SET", "key-load-delay", "0")
	r.Restart("key-load-delay 0")
	if got := r.Command("DBSIZE"); got != ":20000" {
		t.Errorf("DBSIZE = %s", got)
	}
}
