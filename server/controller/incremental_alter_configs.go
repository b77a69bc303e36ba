package controller

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/server/metadata"
)

// handleIncrementalAlterConfigs changes single keys of topics and brokers. The changes of a resource
// happen all or none; resources do not depend on each other. A resource that is named twice is
// refused each time.
func (c *Controller) handleIncrementalAlterConfigs(
	ctx context.Context, r *kmsg.IncrementalAlterConfigsRequest,
) (*kmsg.IncrementalAlterConfigsResponse, error) {
	type resource struct {
		kind kmsg.ConfigResourceType
		name string
	}
	asked := make([]resource, len(r.Resources))
	for i, res := range r.Resources {
		asked[i] = resource{res.ResourceType, res.ResourceName}
	}
	twice := duplicates(asked)
	p := plan{done: "configuration altered", validateOnly: r.ValidateOnly}
	image := c.machine.Image()
	var resources []metadata.AlterResource
	for i := range r.Resources {
		if twice[asked[i]] {
			p.add(refuse(kerr.InvalidRequest, "resource %q is in the request more than once", asked[i].name))
			continue
		}
		p.add(metadata.Item{})
		resources = append(resources, alterResource(image, &r.Resources[i]))
	}
	p.command = func(items []int) metadata.Command {
		return &metadata.AlterConfigs{Resources: pick(resources, items)}
	}
	if err := c.run(ctx, &p); err != nil {
		return nil, err
	}
	resp := r.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	setIndex(&resp.UnknownTags, p.index)
	for i, answer := range p.answers {
		res := kmsg.NewIncrementalAlterConfigsResponseResource()
		res.ResourceType, res.ResourceName = asked[i].kind, asked[i].name
		res.ErrorCode, res.ErrorMessage = answer.Code, message(answer)
		resp.Resources = append(resp.Resources, res)
	}
	return resp, nil
}

func alterResource(
	image *metadata.Image, r *kmsg.IncrementalAlterConfigsRequestResource,
) metadata.AlterResource {
	a := metadata.AlterResource{Type: metadata.ResourceType(r.ResourceType), Name: r.ResourceName}
	for _, config := range r.Configs {
		a.Operations = append(a.Operations, metadata.AlterKey{
			Name: config.Name, Op: metadata.AlterOp(config.Op), Value: config.Value,
		})
	}
	image.FillBases(&a)
	return a
}
