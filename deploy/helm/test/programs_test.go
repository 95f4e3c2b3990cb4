package test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	corev1 "k8s.io/api/core/v1"

	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/internal/natsembed"
	"github.com/afterwrite/afterwrite/streams"
)

// patience is for a machine that does much else.
const patience = 2 * time.Minute

// built is where the programs are, empty if no test wanted them.
var built string

// programs builds the commands as the images hold them, once, and gives the folder.
var programs = sync.OnceValues(func() (dir string, err error) {
	if built, err = os.MkdirTemp("", "afterwrite-programs-"); err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", built, "./cmd/...")
	build.Dir = "../../.."
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return built, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	_ = os.RemoveAll(built) // nothing if there is nothing
	os.Exit(code)
}

// program is the path of the one that a container of the example runs.
func program(t *testing.T, c corev1.Container) string {
	t.Helper()
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	image := c.Image[strings.LastIndexByte(c.Image, '/')+1:]
	name, _, _ := strings.Cut(image, ":")
	return filepath.Join(dir, name)
}

func TestEveryVariableIsOneThatTheProgramKnows(t *testing.T) {
	files := append([]string{minimal, "testdata/options/traces.yaml"}, "testdata/options/nkey.yaml",
		"testdata/options/broker_ca.yaml", "testdata/options/client_certificate.yaml", "testdata/options/dispatcher_settings.yaml", example)
	for _, p := range pods(render(t, values(t, files...))) {
		c := p.Spec.Containers[0]
		commands := slices.DeleteFunc(slices.Clone(c.Args), func(arg string) bool { return strings.HasPrefix(arg, "-") })
		help, err := exec.Command(program(t, c), append(commands, "--help")...).Output()
		if err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		for _, v := range c.Env {
			if strings.HasPrefix(v.Name, "AFTERWRITE_") && !bytes.Contains(help, []byte("$"+v.Name)) {
				t.Errorf("%s is given %s, which it does not know", c.Name, v.Name)
			}
		}
	}
}

// The example is installed as a cluster would: the job first, then every program, each with the files, variables and
// arguments of its pod, in a root of its own that is not its to write, as the user that the chart says. Then a receipt
// must end as an execution.
func TestTheExampleRunsFromAReceiptToAnExecution(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	broker := natsembed.StartTest(t)
	small := "16MiB"
	v := loader.MergeMaps(values(t, example), map[string]any{
		"nats": map[string]any{"url": broker.ClientURL()},
		"streams": map[string]any{"settings": map[string]any{
			"replicas": 1, "receiptsSize": small, "journalSize": small, "intentsSize": small, "executionsSize": small,
		}},
	})
	v["dispatcher"] = map[string]any{"port": freePort(t)}
	for _, list := range []string{"providers", "executors"} {
		for _, program := range v[list].([]any) {
			program.(map[string]any)["port"] = freePort(t)
		}
	}
	objects := render(t, v)
	isJob := func(p pod) bool { return strings.HasPrefix(p.owner, "batch/") }
	all := pods(objects)
	for _, p := range all {
		if !isJob(p) {
			continue
		}
		if c := newContainer(ctx, t, objects, p); c.cmd.Run() != nil {
			t.Fatalf("%s: %s\n%s", p.owner, c.cmd.ProcessState, &c.out)
		}
	}
	var running []*container
	for _, p := range all {
		if !isJob(p) {
			c := newContainer(ctx, t, objects, p)
			c.start(t)
			running = append(running, c)
		}
	}
	for _, c := range running {
		c.awaitReady(ctx, t)
	}
	nc := connectTo(t, broker.ClientURL())
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := streams.NewPublisher(js, streams.PublisherOptions{}).Publish(ctx, receipt(t)); err != nil {
		t.Fatal(err)
	}
	awaitExecution(ctx, t, js)
	for _, c := range running {
		c.stop(t)
	}
}

// container is a program that runs as in its pod.
type container struct {
	name, root, listen string
	cmd                *exec.Cmd
	out                bytes.Buffer
	before             map[string]bool
}

func newContainer(ctx context.Context, t *testing.T, objects []object, p pod) *container {
	t.Helper()
	spec := p.Spec.Containers[0]
	binary := program(t, spec)
	c := &container{name: p.owner, root: t.TempDir(), listen: variable(spec, "AFTERWRITE_LISTEN")}
	files := mounted(t, objects, p.Spec)
	data, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	files["/"+filepath.Base(binary)] = data
	for name, data := range files {
		name = filepath.Join(c.root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, data, 0o555)); err != nil { //nolint:gosec // for another user to read
			t.Fatal(err)
		}
	}
	c.before = c.files(t)
	c.cmd = exec.CommandContext(ctx, "/"+filepath.Base(binary), spec.Args...)
	c.cmd.Stdout, c.cmd.Stderr = &c.out, &c.out
	for _, v := range spec.Env {
		c.cmd.Env = append(c.cmd.Env, v.Name+"="+v.Value)
	}
	if os.Getuid() == 0 {
		if err := os.Chmod(c.root, 0o755); err != nil { //nolint:gosec // for another user to enter
			t.Fatal(err)
		}
		user := uint32(*p.Spec.SecurityContext.RunAsUser)
		c.cmd.Dir = "/"
		c.cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: c.root, Credential: &syscall.Credential{Uid: user, Gid: user}}
		return c
	}
	// Whoever is not root cannot have another root: the files are found where they are.
	c.cmd.Path = filepath.Join(c.root, c.cmd.Path)
	for i := range c.cmd.Args {
		c.cmd.Args[i] = strings.ReplaceAll(c.cmd.Args[i], "/etc/afterwrite", c.root+"/etc/afterwrite")
	}
	for i := range c.cmd.Env {
		c.cmd.Env[i] = strings.ReplaceAll(c.cmd.Env[i], "=/etc/afterwrite", "="+c.root+"/etc/afterwrite")
	}
	return c
}

func (c *container) files(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	if err := filepath.WalkDir(c.root, func(path string, _ fs.DirEntry, err error) error {
		found[path] = true
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return found
}

func (c *container) start(t *testing.T) {
	t.Helper()
	if err := c.cmd.Start(); err != nil {
		t.Fatalf("%s: %v", c.name, err)
	}
	t.Cleanup(func() { _ = c.cmd.Process.Kill() })
}

// awaitReady asks what the readiness probe would.
func (c *container) awaitReady(ctx context.Context, t *testing.T) {
	t.Helper()
	url := "http://127.0.0.1" + c.listen + "/readyz"
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatalf("%s does not get ready: %v", c.name, err)
		}
	}
}

// stop is what a cluster does before it kills.
func (c *container) stop(t *testing.T) {
	t.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("%s did not stop in order: %v\n%s", c.name, err, &c.out)
	}
	if after := c.files(t); !maps.Equal(after, c.before) {
		t.Errorf("%s wrote to its root: %v", c.name, slices.Sorted(maps.Keys(after)))
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", ":0") //nolint:gosec // as the program will
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port
}

func receipt(t *testing.T) *events.Receipt {
	t.Helper()
	data, err := os.ReadFile("../../../events/testdata/valid/receipt-todo_completed.json")
	if err != nil {
		t.Fatal(err)
	}
	r, err := events.Decode[events.Receipt](data)
	if err != nil {
		t.Fatal(err)
	}
	r.Receipt.CommittedAt = events.Timestamp(time.Now().UTC().Format(time.RFC3339Nano))
	return r
}

func awaitExecution(ctx context.Context, t *testing.T, js jetstream.JetStream) {
	t.Helper()
	consumer, err := js.OrderedConsumer(ctx, streams.Executions, jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for {
		m, err := consumer.Next(jetstream.FetchContext(ctx))
		if err != nil {
			t.Fatalf("no execution came to its end: %v", err)
		}
		e, err := events.Decode[events.Execution](m.Data())
		if err != nil {
			t.Fatal(err)
		}
		if e.Status == events.ExecutionCompleted {
			return
		}
		if e.Status == events.ExecutionFailed || e.Status == events.ExecutionRefused {
			t.Fatalf("the execution is %s, %s", e.Status, e.Reason)
		}
	}
}
