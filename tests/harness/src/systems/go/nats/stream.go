package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

const patience = 5 * time.Second

// stream makes a stream, or changes it, so that it has as many replicas as there are servers: an odd number, at most 5.
func stream(arguments []string) error {
	flags := flag.NewFlagSet("stream", flag.ExitOnError)
	servers := flags.String("servers", "", "addresses of servers, of which one has to answer: host,...")
	flags.Parse(arguments)
	if flags.NArg() != 1 || *servers == "" {
		return errors.New("usage: lameduck stream --servers ADDRESS,... NAME")
	}
	var err error
	for _, server := range strings.Split(*servers, ",") {
		if err = streamAt(server, flags.Arg(0)); err == nil {
			return nil
		}
		fmt.Printf("%s: %v\n", server, err)
	}
	return err
}

func streamAt(server, name string) error {
	size, err := clusterSize(server)
	if err != nil {
		return err
	}
	replicas := min(size-(size+1)%2, 5)
	config := map[string]any{"name": name, "subjects": []string{name}, "num_replicas": replicas, "storage": "file"}
	body, err := json.Marshal(config)
	if err != nil {
		return err
	}
	// A stream that exists with these settings is created again without effect.
	if err = request(server, "$JS.API.STREAM.CREATE."+name, body); err != nil {
		if err = request(server, "$JS.API.STREAM.UPDATE."+name, body); err != nil {
			return err
		}
	}
	fmt.Printf("stream %s has %d replicas on %d servers\n", name, replicas, size)
	return nil
}

// clusterSize is the number of servers that JetStream's meta group counts.
func clusterSize(server string) (int, error) {
	client := http.Client{Timeout: patience}
	answer, err := client.Get("http://" + net.JoinHostPort(server, "8222") + "/jsz")
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	var said struct {
		Meta struct {
			Leader string `json:"leader"`
			Size   int    `json:"cluster_size"`
		} `json:"meta_cluster"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&said); err != nil {
		return 0, err
	}
	if said.Meta.Leader == "" || said.Meta.Size == 0 {
		return 0, errors.New("JetStream has no leader")
	}
	return said.Meta.Size, nil
}

// request asks JetStream, and returns the error that it answers.
func request(server, subject string, body []byte) error {
	connection, err := net.DialTimeout("tcp", net.JoinHostPort(server, "4222"), patience)
	if err != nil {
		return err
	}
	defer connection.Close()
	connection.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(connection, "CONNECT {\"verbose\":false}\r\nSUB _INBOX.s 1\r\nPUB %s _INBOX.s %d\r\n%s\r\n", subject, len(body), body)
	reader := bufio.NewReader(connection)
	for {
		line, err := reader.ReadString('\n')
		if err != nil {
			return err
		}
		if strings.HasPrefix(line, "-ERR") {
			return errors.New(strings.TrimSpace(line))
		}
		var size int
		if _, err := fmt.Sscanf(line, "MSG _INBOX.s 1 %d", &size); err != nil {
			continue
		}
		answer := make([]byte, size)
		if _, err := io.ReadFull(reader, answer); err != nil {
			return err
		}
		var said struct {
			Error *struct {
				Description string `json:"description"`
			} `json:"error"`
		}
		if err := json.Unmarshal(answer, &said); err != nil {
			return err
		}
		if said.Error != nil {
			return errors.New(said.Error.Description)
		}
		return nil
	}
}
