package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// serverName is in the certificate in place of any address, as behind a load balancer.
const serverName = "temporal.windlass.test"

// guard serves the frontend behind two ports of TLS: one that asks for a client's certificate, and one that asks for an
// API key, as Temporal Cloud does. The folder gets ca.crt, client.crt and client.key.
func guard(folder, host, frontend, apiKey string) (byCertificate, byKey string) {
	authority, authorityKey := issue("the authority of a test", nil, nil)
	server, serverKey := issue(serverName, authority, authorityKey)
	client, clientKey := issue("an operator", authority, authorityKey)
	write(filepath.Join(folder, "ca.crt"), "CERTIFICATE", authority.Raw)
	write(filepath.Join(folder, "client.crt"), "CERTIFICATE", client.Raw)
	key, err := x509.MarshalPKCS8PrivateKey(clientKey)
	check(err)
	write(filepath.Join(folder, "client.key"), "PRIVATE KEY", key)

	pool := x509.NewCertPool()
	pool.AddCert(authority)
	own := []tls.Certificate{{Certificate: [][]byte{server.Raw}, PrivateKey: serverKey}}
	passed := forward(frontend)
	byCertificate = serve(host, passed, &tls.Config{
		Certificates: own, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
	})
	asked := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer "+apiKey {
			passed.ServeHTTP(w, r)
			return
		}
		// A gRPC answer without a body: 16 is Unauthenticated.
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Grpc-Status", "16")
		w.Header().Set("Grpc-Message", "Request unauthorized.")
	})
	return byCertificate, serve(host, asked, &tls.Config{Certificates: own})
}

// forward hands gRPC on, trailers included, to the frontend, which speaks HTTP/2 without TLS.
func forward(frontend string) http.Handler {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: frontend})
	proxy.Transport = &http.Transport{Protocols: &protocols}
	proxy.FlushInterval = -1
	return proxy
}

func serve(host string, handler http.Handler, config *tls.Config) string {
	listener, err := net.Listen("tcp", host+":0")
	check(err)
	server := &http.Server{Handler: handler, TLSConfig: config, ReadHeaderTimeout: time.Minute}
	go func() { check(server.ServeTLS(listener, "", "")) }()
	return listener.Addr().String()
}

// issue makes a key and its certificate: an authority's own where no issuer is named.
func issue(name string, issuer *x509.Certificate, issuerKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	check(err)
	certificate := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if issuer == nil {
		issuer, issuerKey = certificate, key
		certificate.IsCA, certificate.BasicConstraintsValid, certificate.DNSNames = true, true, nil
		certificate.KeyUsage, certificate.ExtKeyUsage = x509.KeyUsageCertSign, nil
	}
	raw, err := x509.CreateCertificate(rand.Reader, certificate, issuer, &key.PublicKey, issuerKey)
	check(err)
	made, err := x509.ParseCertificate(raw)
	check(err)
	return made, key
}

func write(path, kind string, raw []byte) {
	check(os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}), 0o600))
}
