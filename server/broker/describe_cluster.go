package broker

import (
	"math"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
	"millrace/server/metadata"
)

// DescribeCluster (key 60).
//
// Lists the brokers with the address that clients use; fenced ones only when the request asks for
// them. Beyond Kafka, one that is about to stop is marked ShuttingDown (package ktag). The
// controllers have no endpoints of their own, so endpoint type 2 is refused.

// noOperations is the answer where authorised operations were not computed.
const noOperations = math.MinInt32

// endpointBrokers is the endpoint type of brokers, the only one there is.
const endpointBrokers = 1

func (b *Broker) handleDescribeCluster(v *view, req *kmsg.DescribeClusterRequest) *kmsg.DescribeClusterResponse {
	resp := kmsg.NewPtrDescribeClusterResponse()
	resp.Version = req.Version
	resp.EndpointType = endpointBrokers
	resp.ClusterAuthorizedOperations = noOperations
	if req.EndpointType > endpointBrokers {
		message := "only brokers have endpoints"
		resp.ErrorCode, resp.ErrorMessage = kerr.UnsupportedEndpointType.Code, &message
		return resp
	}
	resp.ClusterID, resp.ControllerID = v.image.ClusterID, b.cfg.ControllerID()
	for _, m := range v.image.Brokers() {
		if m.Fenced && !req.IncludeFencedBrokers {
			continue
		}
		n := kmsg.NewDescribeClusterResponseBroker()
		n.NodeID, n.IsFenced, n.Rack = m.ID, m.Fenced, rack(m)
		n.Host, n.Port = address(m)
		if m.ShuttingDown {
			ktag.SetShuttingDown(&n.UnknownTags)
		}
		resp.Brokers = append(resp.Brokers, n)
	}
	return resp
}

// address is where clients reach a broker.
func address(b *metadata.Broker) (host string, port int32) {
	if len(b.Endpoints) == 0 {
		return "", -1
	}
	return b.Endpoints[0].Host, b.Endpoints[0].Port
}

func rack(b *metadata.Broker) *string {
	if b.Rack == "" {
		return nil
	}
	return &b.Rack
}
