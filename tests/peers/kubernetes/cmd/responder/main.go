// Command responder is the server of the tests' pods: it tells each client how it is seen, over TCP and UDP on one port
// of all addresses. It speaks as traffic.rs does, and can ask another one.
//
//	responder serve PORT
//	    to each TCP client, once that has ended its half, and to each UDP datagram: "PEER BYTES DIGEST"
//	responder ask tcp|udp ADDRESS:PORT BYTES
//	    sends so many bytes, and prints "seen as PEER, sent from OWN"; fails if they did not all arrive as they were
//	responder api PATH
//	    asks the API server for a path, as a pod does, and prints the status and the answer
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	patience = 5 * time.Second
	account  = "/var/run/secrets/kubernetes.io/serviceaccount/"
)

func main() {
	arguments := os.Args[1:]
	var err error
	switch {
	case len(arguments) == 2 && arguments[0] == "serve":
		err = serve(":" + arguments[1])
	case len(arguments) == 4 && arguments[0] == "ask":
		err = ask(arguments[1], arguments[2], arguments[3])
	case len(arguments) == 2 && arguments[0] == "api":
		err = api(arguments[1])
	default:
		err = fmt.Errorf("usage: responder serve PORT | ask tcp|udp ADDRESS:PORT BYTES | api PATH")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "responder:", err)
		os.Exit(1)
	}
}

func serve(address string) error {
	ended := make(chan os.Signal, 1) // the first process of a pod has no default handlers
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	if err := echo(address); err != nil {
		return err
	}
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				fmt.Fprintln(os.Stderr, "responder:", err)
				os.Exit(1)
			}
			go answer(connection)
		}
	}()
	fmt.Println("responder listens at", address)
	<-ended
	return nil
}

// echo answers datagrams.
func echo(address string) error {
	socket, err := net.ListenPacket("udp", address)
	if err != nil {
		return err
	}
	go func() {
		datagram := make([]byte, 1<<16)
		for {
			count, peer, err := socket.ReadFrom(datagram)
			if err != nil {
				continue // such as an ICMP error for an earlier answer
			}
			_, _ = socket.WriteTo([]byte(receipt(peer, datagram[:count])), peer)
		}
	}()
	return nil
}

func answer(connection net.Conn) {
	defer connection.Close()
	hash := fnv.New64a()
	count, err := io.Copy(hash, connection)
	if err != nil {
		return // a client that goes away is the client's business
	}
	fmt.Fprintf(connection, "%s %d %d", connection.RemoteAddr(), count, hash.Sum64())
}

func receipt(peer net.Addr, bytes []byte) string {
	hash := fnv.New64a()
	hash.Write(bytes)
	return fmt.Sprintf("%s %d %d", peer, len(bytes), hash.Sum64())
}

func ask(network, address, size string) error {
	count, err := strconv.Atoi(size)
	if err != nil {
		return err
	}
	bytes := make([]byte, count)
	for i := range bytes {
		bytes[i] = byte(i * 31)
	}
	connection, err := net.DialTimeout(network, address, patience)
	if err != nil {
		return err
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := connection.Write(bytes); err != nil {
		return err
	}
	told := make([]byte, 256)
	if stream, isStream := connection.(*net.TCPConn); isStream {
		if err := stream.CloseWrite(); err != nil {
			return err
		}
	}
	length, err := connection.Read(told)
	if err != nil {
		return err
	}
	peer, rest, _ := strings.Cut(string(told[:length]), " ")
	if _, expected, _ := strings.Cut(receipt(connection.LocalAddr(), bytes), " "); rest != expected {
		return fmt.Errorf("sent %q (bytes, digest), arrived %q", expected, rest)
	}
	fmt.Printf("seen as %s, sent from %s\n", peer, connection.LocalAddr())
	return nil
}

func api(path string) error {
	token, err := os.ReadFile(account + "token")
	if err != nil {
		return err
	}
	authority, err := os.ReadFile(account + "ca.crt")
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	host := net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	request, err := http.NewRequest(http.MethodGet, "https://"+host+path, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+string(token))
	client := &http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	fmt.Println(response.Status)
	_, err = io.Copy(os.Stdout, response.Body)
	return err
}
