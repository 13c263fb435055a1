package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// A pair is a certificate and its key.
type pair struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// makeCertificates makes what is missing of: an authority (ca), a certificate of the server for this address and for
// loopback (server), one of an administrator (admin), and the key that signs service accounts' tokens. A restarted
// server finds them all. When the authority is missing, so are the two that it has signed.
func makeCertificates(dir string, address net.IP) error {
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
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		IPAddresses: []net.IP{address, net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, authority); err != nil {
		return err
	}
	_, err = issue(dir, "admin", &x509.Certificate{
		Subject:     pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, authority)
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
