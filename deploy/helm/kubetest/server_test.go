package kubetest

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const serverDir = "apiserver"

// server is the path of the API server's binary. It takes minutes to build, so it is kept among the user's caches under
// the digest of what it is built from.
var server = sync.OnceValues(func() (string, error) {
	caches, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	var source []byte
	for _, name := range []string{"main.go", "go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(serverDir, name))
		if err != nil {
			return "", err
		}
		source = fmt.Appendf(source, "%s %d\n%s", name, len(data), data)
	}
	dir := filepath.Join(caches, "afterwrite")
	digest := sha256.Sum256(source)
	binary := filepath.Join(dir, "apiserver-"+hex.EncodeToString(digest[:8]))
	if _, err := os.Stat(binary); !errors.Is(err, os.ErrNotExist) {
		return binary, err
	}
	fmt.Fprintf(os.Stderr, "building a Kubernetes API server into %s, which is done once and takes minutes\n", dir)
	version, err := command("go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	if err != nil {
		return "", err
	}
	// A client must be able to read which version it talks to, and a build of the module alone does not say.
	stamp := "-s -w -X k8s.io/component-base/version.gitVersion=" + version
	unfinished := fmt.Sprintf("%s.%d", binary, os.Getpid())
	if _, err := command("go", "build", "-ldflags", stamp, "-o", unfinished, "."); err != nil {
		return "", err
	}
	return binary, os.Rename(unfinished, binary)
})

func command(name string, args ...string) (string, error) {
	c := exec.Command(name, args...)
	c.Dir = serverDir
	var said strings.Builder
	c.Stderr = &said
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", c, err, said.String())
	}
	return strings.TrimSpace(string(out)), nil
}

// startServer gives the path of a kubeconfig for an API server of the test's own.
func startServer(t *testing.T) string {
	t.Helper()
	binary, err := server()
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(context.Background(), binary, t.TempDir())
	c.Stderr = log
	stdin, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		if err := c.Wait(); err != nil {
			t.Errorf("the API server ended with %v", err)
		}
		_ = log.Close()
	})
	kubeconfig, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		said, _ := os.ReadFile(log.Name())
		t.Fatalf("the API server did not start:\n%s", said)
	}
	return strings.TrimSpace(kubeconfig)
}

// as is how a user of the server connects to it.
func as(t *testing.T, kubeconfig, user string) *rest.Config {
	t.Helper()
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig},
		&clientcmd.ConfigOverrides{CurrentContext: user},
	).ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	return config
}
