package fakenode

import (
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// Server is a node on a real port.
type Server struct {
	*Node
	http   *http.Server
	failed error // of http, read after works
	works  sync.WaitGroup
}

// Serve starts a node that has only the first block of a chain, on a free port of
// 127.0.0.1. Close ends it.
func Serve(c *Chain, chainID int64) (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{Node: newNode(l.Addr().String(), c, chainID)}
	s.http = &http.Server{Handler: s.Node, ReadHeaderTimeout: time.Second}
	s.works.Go(func() {
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.failed = err
		}
	})
	return s, nil
}

// URL is where the node answers over HTTP.
func (s *Server) URL() string { return "http://" + s.Host }

// Close ends the node and waits for it.
func (s *Server) Close() error {
	err := s.http.Close()
	s.CloseSockets()
	s.works.Wait()
	return errors.Join(err, s.failed)
}
