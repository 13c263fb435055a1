package main

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

const patience = 30 * time.Second

// serve does not come back but with an error: kube-apiserver ends the process.
func serve(dir, address string, flags []string) error {
	ip := net.ParseIP(address)
	if ip == nil {
		return fmt.Errorf("%q is no IP address", address)
	}
	if err := makeCertificates(dir, []net.IP{ip}); err != nil {
		return fmt.Errorf("certificates in %s: %w", dir, err)
	}
	if err := startEtcd(dir); err != nil {
		return fmt.Errorf("etcd in %s: %w", dir, err)
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	os.Args = append([]string{
		"kube-apiserver",
		"--etcd-servers=" + socket(dir),
		"--bind-address=" + address,
		"--advertise-address=" + address,
		"--client-ca-file=" + in("ca.crt"),
		"--tls-cert-file=" + in("server.crt"),
		"--tls-private-key-file=" + in("server.key"),
		"--service-account-key-file=" + in("service-account.key"),
		"--service-account-signing-key-file=" + in("service-account.key"),
		"--service-account-issuer=https://kubernetes.default.svc",
	}, flags...)
	os.Exit(cli.Run(app.NewAPIServerCommand()))
	return nil
}

func socket(dir string) string {
	return "unix://" + filepath.Join(dir, "etcd.sock")
}

// startEtcd starts a cluster of one that answers at a unix socket, and waits until it does.
func startEtcd(dir string) error {
	client, err := url.Parse(socket(dir))
	if err != nil {
		return err
	}
	if err := os.Remove(client.Path); err != nil && !os.IsNotExist(err) {
		return err // what a killed server left has to go
	}
	nobody := url.URL{Scheme: "http", Host: "127.0.0.1:0"} // there are no other members, and no other clients
	config := embed.NewConfig()
	config.Dir = filepath.Join(dir, "etcd")
	config.ListenClientUrls = []url.URL{*client}
	config.AdvertiseClientUrls = []url.URL{nobody}
	config.ListenPeerUrls = []url.URL{nobody}
	config.EnableGRPCGateway = false
	config.UnsafeNoFsync = true // data outlives the process, which is all that a test ends
	config.SnapshotCount = 1000
	config.LogLevel = "error"
	server, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	select {
	case <-server.Server.ReadyNotify():
		return nil
	case <-time.After(patience):
		return fmt.Errorf("not ready after %s", patience)
	}
}

// compact makes a watch that wants to resume before this moment impossible.
func compact(dir string) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{socket(dir)}, DialTimeout: patience})
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	now, err := client.Get(ctx, "any", clientv3.WithCountOnly())
	if err != nil {
		return fmt.Errorf("etcd at %s: %w", socket(dir), err)
	}
	if _, err := client.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		return fmt.Errorf("etcd at %s: compacting to revision %d: %w", socket(dir), now.Header.Revision, err)
	}
	fmt.Println(now.Header.Revision)
	return nil
}
