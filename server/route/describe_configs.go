package route

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// describeConfigs routes DescribeConfigs: a broker answers for its own configuration, the node asked
// for all the rest.
func describeConfigs(ctx context.Context, r *Router, request kmsg.Request) (kmsg.Response, error) {
	req := request.(*kmsg.DescribeConfigsRequest)
	places := make(map[int32][]int) // in the request, by who answers
	for i := range req.Resources {
		id := owner(r, &req.Resources[i])
		places[id] = append(places[id], i)
	}
	if len(places) == 0 || len(places[r.cfg.NodeID]) == len(req.Resources) {
		return r.cfg.Broker.Request(ctx, req)
	}
	resp := kmsg.NewPtrDescribeConfigsResponse()
	resp.Version = req.Version
	resp.Resources = make([]kmsg.DescribeConfigsResponseResource, len(req.Resources))
	var wg sync.WaitGroup
	for _, id := range slices.Sorted(maps.Keys(places)) { // in an order that a simulation can repeat
		wg.Go(func() { r.describeAt(ctx, id, req, places[id], resp.Resources) })
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return resp, nil
}

// owner is the broker that a resource names, or this node where there is no such broker.
func owner(r *Router, resource *kmsg.DescribeConfigsRequestResource) int32 {
	if resource.ResourceType != kmsg.ConfigResourceTypeBroker {
		return r.cfg.NodeID
	}
	id, err := strconv.ParseInt(resource.ResourceName, 10, 32)
	if err != nil || r.cfg.Image().Broker(int32(id)) == nil {
		return r.cfg.NodeID
	}
	return int32(id)
}

// describeAt asks one broker for the resources at the given places, and puts its answers there.
func (r *Router) describeAt(ctx context.Context, id int32, req *kmsg.DescribeConfigsRequest, at []int,
	out []kmsg.DescribeConfigsResponseResource) {
	sub := *req
	sub.Resources = nil
	for _, i := range at {
		sub.Resources = append(sub.Resources, req.Resources[i])
		out[i] = kmsg.NewDescribeConfigsResponseResource()
		out[i].ResourceType, out[i].ResourceName = req.Resources[i].ResourceType, req.Resources[i].ResourceName
		out[i].ErrorCode = kerr.BrokerNotAvailable.Code
	}
	answer, err := r.askBroker(ctx, id, &sub)
	if err != nil {
		return
	}
	resources := answer.(*kmsg.DescribeConfigsResponse).Resources
	for k, i := range at {
		if k < len(resources) {
			out[i] = resources[k]
		}
	}
}
