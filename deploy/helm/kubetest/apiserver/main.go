// Command apiserver is a Kubernetes API server and its etcd, on loopback and in one process, for as long as its standard
// input is open. It holds whoever asks to what a cluster would: the schemas, defaults and checks of every kind, field by
// field, role-based access, and Pod Security. It runs nothing, for there are no controllers, no scheduler and no nodes.
//
// What it needs it makes in the folder that it is given: certificates, keys, tokens, the store. Once it is ready it
// prints the path of a kubeconfig with a context for each of the users admin, who may do everything, and installer, who
// may do nothing until a role says so.
package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/embed"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: apiserver FOLDER")
		os.Exit(2)
	}
	// Whoever started this may be killed, and nobody may be left behind. There is nothing to keep, so nothing to wait for.
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	fmt.Fprintln(os.Stderr, "apiserver:", run(context.Background(), os.Args[1]))
	os.Exit(1)
}

// run returns when something goes wrong.
func run(ctx context.Context, dir string) error {
	store, err := startStore(filepath.Join(dir, "etcd"))
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	users := map[string]string{"admin": rand.Text(), "installer": rand.Text()}
	flags, err := settings(dir, store.Clients[0].Addr().String(), users)
	if err != nil {
		return err
	}
	server, err := configure(ctx, listener, flags)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- app.Run(ctx, server) }()

	config := kubeconfig(dir, listener.Addr().String(), users)
	if err := ready(ctx, config, ended); err != nil {
		return err
	}
	path := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return err
	}
	fmt.Println(path)
	return <-ended
}

func startStore(dir string) (*embed.Etcd, error) {
	c := embed.NewConfig()
	c.Dir = dir
	c.LogLevel = "error"
	// Nothing of it outlives the process.
	c.UnsafeNoFsync = true
	somewhere := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	c.ListenClientUrls, c.AdvertiseClientUrls = somewhere, somewhere
	c.ListenPeerUrls, c.AdvertisePeerUrls = somewhere, somewhere
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	store, err := embed.StartEtcd(c)
	if err != nil {
		return nil, err
	}
	select {
	case <-store.Server.ReadyNotify():
		return store, nil
	case err := <-store.Err():
		return nil, err
	}
}

// settings are the flags of the API server. Admission is that of a cluster, as it is by default, Pod Security included.
func settings(dir, store string, users map[string]string) ([]string, error) {
	var tokens strings.Builder
	for user, token := range users {
		groups := ""
		if user == "admin" {
			groups = "system:masters"
		}
		fmt.Fprintf(&tokens, "%s,%s,%s,%s\n", token, user, user, groups)
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	private := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	tokenFile, keyFile := filepath.Join(dir, "tokens.csv"), filepath.Join(dir, "serviceaccounts.key")
	if err := errors.Join(os.WriteFile(tokenFile, []byte(tokens.String()), 0o600), os.WriteFile(keyFile, private, 0o600)); err != nil {
		return nil, err
	}
	return []string{
		"--etcd-servers=http://" + store,
		"--cert-dir=" + dir,
		"--token-auth-file=" + tokenFile,
		"--authorization-mode=RBAC",
		"--anonymous-auth=false",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-signing-key-file=" + keyFile,
		"--service-account-key-file=" + keyFile,
		"--service-cluster-ip-range=10.0.0.0/24",
		// As clusters have it, so that privileged pods are for admission to refuse.
		"--allow-privileged=true",
		// There is no network in which the service "kubernetes" could lead here.
		"--endpoint-reconciler-type=none",
	}, nil
}

// configure is what the command kube-apiserver does with its flags, but for the port: it listens already, so that no
// other process can take it.
func configure(ctx context.Context, listener net.Listener, flags []string) (options.CompletedOptions, error) {
	o := options.NewServerRunOptions()
	set := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	for _, part := range o.Flags().FlagSets {
		set.AddFlagSet(part)
	}
	if err := set.Parse(flags); err != nil {
		return options.CompletedOptions{}, err
	}
	if err := o.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return options.CompletedOptions{}, err
	}
	address := listener.Addr().(*net.TCPAddr)
	o.SecureServing.Listener, o.SecureServing.BindPort = listener, address.Port
	o.SecureServing.BindAddress, o.SecureServing.ExternalAddress = address.IP, address.IP
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	completed, err := o.Complete(ctx)
	if err != nil {
		return options.CompletedOptions{}, err
	}
	return completed, utilerrors.NewAggregate(completed.Validate())
}

func kubeconfig(dir, address string, users map[string]string) *api.Config {
	config := api.NewConfig()
	cluster := api.NewCluster()
	cluster.Server = "https://" + address
	// The server made it for itself, and it ends with who signed it.
	cluster.CertificateAuthority = filepath.Join(dir, "apiserver.crt")
	config.Clusters["test"] = cluster
	for user, token := range users {
		config.AuthInfos[user] = &api.AuthInfo{Token: token}
		config.Contexts[user] = &api.Context{Cluster: "test", AuthInfo: user}
	}
	config.CurrentContext = "admin"
	return config
}

// ready waits until the server says so, with every hook of its start behind it.
func ready(ctx context.Context, config *api.Config, ended <-chan error) error {
	c, err := clientcmd.NewDefaultClientConfig(*config, nil).ClientConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(c)
	if err != nil {
		return err
	}
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		_, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		if err == nil {
			return nil
		}
		select {
		case end := <-ended:
			return fmt.Errorf("it ended before it was ready: %w", end)
		case <-again.C:
		}
	}
}
