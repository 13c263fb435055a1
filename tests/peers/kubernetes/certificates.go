package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A pair is a certificate and its key.
type pair struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// certificates is makeCertificates, and then a client's certificate for each NAME=COMMON-NAME[/ORGANISATION].
func certificates(dir, addresses string, clients []string) error {
	var ips []net.IP
	for _, address := range strings.Split(addresses, ",") {
		ip := net.ParseIP(address)
		if ip == nil {
			return fmt.Errorf("%q is no IP address", address)
		}
		ips = append(ips, ip)
	}
	if err := makeCertificates(dir, ips); err != nil {
		return err
	}
	authority, err := read(dir, "ca")
	if err != nil {
		return err
	}
	for _, client := range clients {
		name, subject, found := strings.Cut(client, "=")
		if !found {
			return fmt.Errorf("%q is not NAME=COMMON-NAME[/ORGANISATION]", client)
		}
		template := clientTemplate(subject)
		if common, organisation, found := strings.Cut(subject, "/"); found {
			template = clientTemplate(common, organisation)
		}
		if _, err := issue(dir, name, template, authority); err != nil {
			return err
		}
	}
	return nil
}

func clientTemplate(common string, organisation ...string) *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: common, Organization: organisation},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}

// read finds a pair that issue has written.
func read(dir, name string) (*pair, error) {
	loaded, err := tls.LoadX509KeyPair(filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key"))
	if err != nil {
		return nil, err
	}
	key, ok := loaded.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s.key is of another kind", name)
	}
	return &pair{loaded.Leaf, key}, nil
}

// makeCertificates makes what is missing of: an authority (ca), a certificate of the server for these addresses and for
// loopback (server), one of an administrator (admin), and the key that signs service accounts' tokens. A restarted
// server finds them all. When the authority is missing, so are the two that it has signed.
func makeCertificates(dir string, addresses []net.IP) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := makeTokenKey(filepath.Join(dir, "service-account.key")); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, "admin.crt")); err == nil { // the last one that is written
		return nil
	}
	authority, err := issue(dir, "ca", &x509.Certificate{
		Subject:               pkix.Name{CommonName: "trieste-lab " + time.Now().Format(time.RFC3339Nano)},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}, nil)
	if err != nil {
		return err
	}
	if _, err := issue(dir, "server", &x509.Certificate{
		Subject: pkix.Name{CommonName: "kube-apiserver"},
		DNSNames: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubernetes.default.svc.cluster.local"},
		IPAddresses: append(addresses, net.IPv4(127, 0, 0, 1), net.IPv6loopback),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, authority); err != nil {
		return err
	}
	_, err = issue(dir, "admin", clientTemplate("admin", "system:masters"), authority)
	return err
}

func makeTokenKey(path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	return writeKey(path, key)
}

// issue signs a certificate, by itself without an authority, and writes NAME.key and NAME.crt.
func issue(dir, name string, template *x509.Certificate, authority *pair) (*pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	template.NotBefore = time.Now().Add(-24 * time.Hour) // tests run some clients with clocks that are off
	template.NotAfter = time.Now().Add(365 * 24 * time.Hour)
	signer := authority
	if signer == nil {
		signer = &pair{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer.certificate, key.Public(), signer.key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := writeKey(filepath.Join(dir, name+".key"), key); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, name+".crt")
	return &pair{certificate, key}, os.WriteFile(path, encode("CERTIFICATE", der), 0o644)
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(path, encode("EC PRIVATE KEY", der), 0o600)
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
