package server

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"millrace/server/quorum"
)

// maxVoters bounds the voters of the metadata quorum: each command waits for a majority of them.
const maxVoters = 5

// clustered reports whether the node shares its cluster with others.
func (c *Config) clustered() bool { return len(c.Voters) > 0 }

// checkCluster says what is wrong with the settings that concern other nodes.
func (c *Config) checkCluster() (errs []error) {
	add := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !c.clustered() {
		if len(c.ClusterSecret) > 0 {
			add("cluster-secret-file: is for nodes of a cluster: give --voters as well")
		}
		return errs
	}
	if n := len(c.Voters); n%2 == 0 || n > maxVoters {
		add("voters: %d given: want 1, 3 or 5, since an even number survives no more failures than one less; "+
			"further nodes join without a vote", n)
	}
	for i, v := range c.Voters {
		if v.ID < 1 {
			add("voters: node id %d: must be at least 1", v.ID)
		}
		if slices.ContainsFunc(c.Voters[:i], func(o quorum.Voter) bool { return o.ID == v.ID }) {
			add("voters: node %d is there twice", v.ID)
		}
		if slices.ContainsFunc(c.Voters[:i], func(o quorum.Voter) bool { return o.Address == v.Address }) {
			add("voters: %s is there twice", v.Address)
		}
		if err := CheckNodeURL(v.Address); err != nil {
			add("voters: node %d: %w", v.ID, err)
		}
	}
	if c.Listener == nil && c.voter(c.NodeID) == "" && unspecified(c.address(textAddr(c.Listen))) {
		add("advertised.listeners: node %d is not among the voters and listens on all addresses (%s): say under which "+
			"URL other nodes reach it, for example --set advertised.listeners=http://node%d.example:8082",
			c.NodeID, c.Listen, c.NodeID)
	}
	if len(c.ClusterSecret) == 0 && !c.loopback() {
		add("voters: other machines can reach %s, and without a secret anybody could pose as a node of the cluster: "+
			"give every node the same --cluster-secret-file (for example: head -c 32 /dev/urandom | base64 > secret)", c.Listen)
	}
	return errs
}

// textAddr is an address that nothing listens on yet.
type textAddr string

// Network implements net.Addr.
func (textAddr) Network() string { return "tcp" }

// String implements net.Addr.
func (a textAddr) String() string { return string(a) }

// unspecified reports whether a base URL names no machine: 0.0.0.0, [::], or no host at all.
func unspecified(base string) bool {
	u, err := url.Parse(base)
	if err != nil {
		return false
	}
	a, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "" || err == nil && a.IsUnspecified()
}

// loopbackSecret stands for the secret of a cluster that only programs on this machine can reach and that was given
// none. Whoever can run a program here can read it in this file.
const loopbackSecret = "a cluster on one machine, without a secret"

// secret is what the credential between nodes is made of; empty for a cluster of one, which takes none.
func (c *Config) secret() []byte {
	if len(c.ClusterSecret) == 0 && c.clustered() {
		return []byte(loopbackSecret)
	}
	return c.ClusterSecret
}

// loopback reports whether only this machine can reach the node.
func (c *Config) loopback() bool {
	if c.Listener != nil {
		host, _, err := net.SplitHostPort(c.Listener.Addr().String())
		return err == nil && isLoopback(host)
	}
	host, _, err := net.SplitHostPort(c.Listen)
	return err == nil && isLoopback(host)
}

// ParseVoters reads ID=URL,ID=URL,..., as --voters gives them.
func ParseVoters(text string) ([]quorum.Voter, error) {
	var voters []quorum.Voter
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		id, address, ok := strings.Cut(item, "=")
		n, err := strconv.ParseInt(strings.TrimSpace(id), 10, 32)
		if !ok || err != nil {
			return nil, fmt.Errorf("%q: want ID=URL, for example 1=http://node1.example:8082", item)
		}
		address = strings.TrimSuffix(strings.TrimSpace(address), "/")
		if err := CheckNodeURL(address); err != nil {
			return nil, err
		}
		voters = append(voters, quorum.Voter{ID: int32(n), Address: address})
	}
	return voters, nil
}

// CheckNodeURL refuses what is no base URL of a node.
func CheckNodeURL(address string) error {
	u, err := url.Parse(address)
	if err == nil && u.Scheme == "https" {
		return fmt.Errorf("%q: nodes do not speak TLS in this version: want http://%s", address, u.Host)
	}
	if err != nil || u.Scheme != "http" || u.Hostname() == "" || "http://"+u.Host != address {
		return fmt.Errorf("%q: want the base URL of a node, such as http://node1.example:8082", address)
	}
	_, err = portOf(u)
	return err
}

// voter is the address of a voter of the list, "" of a node that is not in it.
func (c *Config) voter(id int32) string {
	for _, v := range c.Voters {
		if v.ID == id {
			return v.Address
		}
	}
	return ""
}

// address is the base URL under which other nodes reach this one.
func (c *Config) address(listening net.Addr) string {
	if listed := c.voter(c.NodeID); listed != "" {
		return listed
	}
	if urls, err := c.advertised(); err == nil {
		for _, u := range urls {
			if u.Scheme == "http" {
				return u.String()
			}
		}
	}
	return "http://" + listening.String()
}
