package wire

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// StdioConfig describes a child process that speaks MCP on its standard
// streams.
type StdioConfig struct {
	Common
	// Command is executed directly; a relative path starts at Dir.
	Command []string
	// Env is the whole environment, "NAME=value"; of a name that is there twice
	// the last counts.
	Env []string
	Dir string
	// Grace is how long the child may take to end after its input is closed, and
	// again after SIGTERM; 2 s when 0.
	Grace time.Duration
}

// Times of a child that ends by itself.
const (
	defaultGrace = 2 * time.Second
	// drainTime is how long output that is already in the pipes may take.
	drainTime = time.Second
)

// Stdio is a Link over the standard streams of a child process (MCP revision
// 2025-11-25, "stdio": one message a line).
type Stdio struct {
	cfg    StdioConfig
	proc   *process
	stdin  *os.File
	stdout *os.File
	stderr *os.File
	tail   tail // the last lines of stderr
	open   table

	writing    chan struct{} // holds the one who writes
	replies    chan []byte
	readerDone chan struct{}
	stderrDone chan struct{}
	hurry      chan struct{} // closed to kill instead of waiting
	hurryOnce  sync.Once
	lost       chan struct{}
	lostOnce   sync.Once
	cause      error // set before lost is closed
	end        context.CancelFunc
	wg         sync.WaitGroup
}

// NewStdio starts the child. The end of ctx does not end it; Close does.
func NewStdio(ctx context.Context, cfg StdioConfig) (*Stdio, error) {
	if cfg.Grace == 0 {
		cfg.Grace = defaultGrace
	}
	path, err := lookPath(cfg.Command[0], cfg.Dir, cfg.Env)
	if err != nil {
		return nil, err
	}
	l := &Stdio{
		cfg: cfg, writing: make(chan struct{}, 1), replies: make(chan []byte, maxReplies),
		readerDone: make(chan struct{}), stderrDone: make(chan struct{}),
		hurry: make(chan struct{}), lost: make(chan struct{}),
	}
	cmd := &exec.Cmd{Path: path, Args: cfg.Command, Env: cfg.Env, Dir: cfg.Dir}
	if err := l.start(cmd); err != nil {
		return nil, err
	}
	ctx, l.end = context.WithCancel(context.WithoutCancel(ctx))
	l.wg.Go(l.readMessages)
	l.wg.Go(l.readStderr)
	l.wg.Go(func() { l.writeReplies(ctx) })
	l.wg.Go(l.supervise)
	return l, nil
}

// start connects the three streams with pipes of our own, which have deadlines
// and do not make Wait wait for grandchildren.
func (l *Stdio) start(cmd *exec.Cmd) error {
	var opened []*os.File
	closeAll := func(files []*os.File) {
		for _, f := range files {
			_ = f.Close() //nolint:errcheck // nothing was written
		}
	}
	pipe := func() (*os.File, *os.File, error) {
		r, w, err := os.Pipe()
		if err == nil {
			opened = append(opened, r, w)
		}
		return r, w, err
	}
	inR, inW, err1 := pipe()
	outR, outW, err2 := pipe()
	errR, errW, err3 := pipe()
	if err := errors.Join(err1, err2, err3); err != nil {
		closeAll(opened)
		return fmt.Errorf("open pipes: %w", err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inR, outW, errW
	proc, err := startProcess(cmd)
	if err != nil {
		closeAll(opened)
		return fmt.Errorf("start %q: %w", l.cfg.Command[0], err)
	}
	closeAll([]*os.File{inR, outW, errW})
	l.proc, l.stdin, l.stdout, l.stderr = proc, inW, outR, errR
	return nil
}

// Agreed implements Link; the standard streams carry no revision.
func (l *Stdio) Agreed(string) {}

// Lost implements Link.
func (l *Stdio) Lost() <-chan struct{} { return l.lost }

// Cause implements Link.
func (l *Stdio) Cause() error {
	select {
	case <-l.lost:
		return l.cause
	default:
		return nil
	}
}

// Request implements Link.
func (l *Stdio) Request(ctx context.Context, method string, params json.RawMessage) (Reply, error) {
	id, ch, err := l.open.add()
	if err != nil {
		return Reply{}, err
	}
	defer l.open.remove(id)
	if err := l.write(ctx, encodeRequest(id, method, params)); err != nil {
		return Reply{}, err
	}
	select {
	case o := <-ch:
		return o.reply, o.err
	case <-ctx.Done():
	}
	select {
	case o := <-ch: // it came in the same moment
		return o.reply, o.err
	default:
	}
	l.cancel(ctx, id, method)
	return Reply{}, fault(MaybeSent, context.Cause(ctx))
}

// cancel tells the server that nobody waits any more. It must not wait for a
// server that reads nothing, so it goes the way of the replies.
func (l *Stdio) cancel(ctx context.Context, id int64, method string) {
	if method == "initialize" {
		return // must not be cancelled ("Cancellation", behaviour requirement 2)
	}
	l.reply(encodeNotification("notifications/cancelled", cancelParams(id, context.Cause(ctx).Error())))
}

// Notify implements Link.
func (l *Stdio) Notify(ctx context.Context, method string, params json.RawMessage) error {
	return l.write(ctx, encodeNotification(method, params))
}

// write sends one line. When ctx ends while the server does not read, a line
// that has not begun is withdrawn; one that is half written ends the link, since
// nothing can follow it.
func (l *Stdio) write(ctx context.Context, msg []byte) error {
	select {
	case l.writing <- struct{}{}:
	case <-l.lost:
		return fault(NotSent, l.cause)
	case <-ctx.Done():
		return fault(NotSent, context.Cause(ctx))
	}
	defer func() { <-l.writing }()
	if err := ctx.Err(); err != nil {
		return fault(NotSent, context.Cause(ctx))
	}
	fired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(fired)
		_ = l.stdin.SetWriteDeadline(time.Unix(1, 0)) //nolint:errcheck // a closed pipe fails the write as well
	})
	n, err := l.stdin.Write(append(msg, '\n'))
	if !stop() {
		<-fired
	}
	_ = l.stdin.SetWriteDeadline(time.Time{}) //nolint:errcheck // see above
	switch {
	case err == nil:
		return nil
	case n == 0 && ctx.Err() != nil:
		return faultf(NotSent, "the server does not read its input: %w", context.Cause(ctx))
	case n == 0:
		// It is usually dying; its end then says more than the broken pipe.
		l.await(l.lost, drainTime)
		l.fail(fmt.Errorf("the server closed its input: %w", err))
		return fault(NotSent, l.cause)
	}
	cause := fmt.Errorf("the server stopped reading its input in the middle of a message: %w", err)
	l.fail(cause)
	if ctx.Err() != nil {
		cause = context.Cause(ctx)
	}
	return fault(MaybeSent, cause)
}

// reply queues an answer to a request of the server.
func (l *Stdio) reply(msg []byte) {
	select {
	case l.replies <- msg:
	case <-l.lost:
	default:
		l.fail(errors.New("the server asks more than it reads the answers of"))
	}
}

func (l *Stdio) writeReplies(ctx context.Context) {
	for {
		select {
		case msg := <-l.replies:
			bounded, cancel := context.WithTimeout(ctx, replyTimeout)
			err := l.write(bounded, msg)
			cancel()
			if err != nil {
				l.cfg.Log.LogAttrs(ctx, slog.LevelDebug, "mcp_reply_not_written", slog.String("error", err.Error()))
			}
		case <-l.lost:
			return
		}
	}
}

func (l *Stdio) readStderr() {
	defer close(l.stderrDone)
	lines := &lineReader{r: bufio.NewReader(l.stderr), max: tailLine}
	for {
		ln, err := lines.next()
		if err != nil {
			return
		}
		l.tail.add(string(ln.text))
		l.cfg.Log.Debug("mcp_server_stderr", slog.String("line", Short(string(ln.text), tailLine)))
	}
}

func (l *Stdio) readMessages() {
	defer close(l.readerDone)
	lines := &lineReader{r: bufio.NewReaderSize(l.stdout, 64<<10), max: MaxMessage}
	noise := 0
	for {
		ln, err := lines.next()
		if err != nil {
			return
		}
		if why := l.take(ln); why != "" {
			if noise++; noise <= maxNoise {
				l.cfg.Log.Warn("mcp_stdout_line_skipped",
					slog.String("reason", why), slog.String("line", Short(string(ln.text), 200)))
			}
		}
	}
}

// take handles one line and returns why it was skipped, if it was.
func (l *Stdio) take(ln line) string {
	if ln.tooLong {
		return l.takeTooLong(ln)
	}
	text := bytes.TrimSpace(ln.text)
	if len(text) == 0 {
		return ""
	}
	messages, err := parse(text)
	if err != nil {
		return l.takeGlued(text, err)
	}
	why := ""
	for _, m := range messages {
		if w := l.dispatch(m); w != "" {
			why = w
		}
	}
	return why
}

func (l *Stdio) dispatch(m message) string {
	switch m.kind {
	case request:
		l.reply(l.cfg.answer(m))
	case notification:
		l.cfg.Handler.Notification(m.method)
	case response:
		if !l.open.deliver(m) {
			return "an answer to no open request"
		}
	}
	return ""
}

// takeGlued recovers an answer that stands behind a text without a line end, as
// progress displays print it. Only one whole answer to an open request counts.
func (l *Stdio) takeGlued(text []byte, parseErr error) string {
	at := bytes.Index(text, []byte(`{"jsonrpc"`))
	if at <= 0 {
		return parseErr.Error()
	}
	messages, err := parse(text[at:])
	if err != nil || len(messages) != 1 || messages[0].kind != response || !l.open.deliver(messages[0]) {
		return parseErr.Error()
	}
	return "text before an answer; the answer was used"
}

// takeTooLong fails the request whose answer was too long. If it cannot be told
// which one that was, none of the open ones can be waited for any more.
func (l *Stdio) takeTooLong(ln line) string {
	cause := faultf(Answered, "the answer of %d bytes is over the limit of %d and was thrown away", ln.size, MaxMessage)
	id, found := l.open.find(ln.owner(), false)
	if !found {
		id, found = l.open.only()
	}
	if found {
		l.open.settle(id, outcome{err: cause})
	} else {
		l.fail(cause.Err)
	}
	return cause.Error()
}

// fail makes the link unusable and starts the end of the child.
func (l *Stdio) fail(cause error) {
	l.lostOnce.Do(func() {
		l.cause = cause
		close(l.lost)
		l.end()
	})
	l.open.fail(l.cause)
}

// supervise ends the child when asked to or when it ends itself, and cleans up.
func (l *Stdio) supervise() {
	select {
	case <-l.proc.exited:
	case <-l.lost:
	case <-l.readerDone: // it is about to exit, or lives on without an output
		if !l.await(l.proc.exited, drainTime) {
			l.fail(errors.New("the server closed its output"))
		}
	}
	if !l.ended() {
		l.terminate()
	}
	// The group is killed, so the pipes end now, unless a process that left the
	// group still holds them.
	for _, f := range []*os.File{l.stdout, l.stderr} {
		_ = f.SetReadDeadline(l.cfg.Clock.Now().Add(drainTime)) //nolint:errcheck // pipes have deadlines
	}
	<-l.readerDone
	<-l.stderrDone
	l.fail(l.deathCause()) // keeps an earlier cause
	for _, f := range []*os.File{l.stdin, l.stdout, l.stderr} {
		_ = f.Close() //nolint:errcheck // the child is gone
	}
}

func (l *Stdio) deathCause() error {
	text := l.proc.exitText()
	if last := l.LastWords(); last != "" {
		text += "; its last words: " + last
	}
	return errors.New(text)
}

// LastWords returns the last lines of the child's stderr in one.
func (l *Stdio) LastWords() string { return l.tail.String() }

func (l *Stdio) ended() bool {
	select {
	case <-l.proc.exited:
		return true
	default:
		return false
	}
}

// terminate follows "Lifecycle, Shutdown, stdio": close the input, wait, SIGTERM,
// wait, SIGKILL.
func (l *Stdio) terminate() {
	// Whoever still writes is stopped by the close.
	_ = l.stdin.Close() //nolint:errcheck // nothing is to be flushed
	if l.await(l.proc.exited, l.cfg.Grace) {
		return
	}
	l.proc.signal(syscall.SIGTERM)
	if l.await(l.proc.exited, l.cfg.Grace) {
		return
	}
	l.proc.signal(syscall.SIGKILL)
	<-l.proc.exited
}

// await waits for ch, at most for d or until somebody is in a hurry.
func (l *Stdio) await(ch <-chan struct{}, d time.Duration) bool {
	select {
	case <-ch:
		return true
	case <-l.cfg.Clock.After(d):
	case <-l.hurry:
	}
	return false
}

// Close implements Link.
func (l *Stdio) Close(ctx context.Context) {
	l.fail(errClosed)
	stop := context.AfterFunc(ctx, func() { l.hurryOnce.Do(func() { close(l.hurry) }) })
	defer stop()
	l.wg.Wait()
}

// errClosed is the cause of links that this side closed.
var errClosed = errors.New("the connection was closed")
