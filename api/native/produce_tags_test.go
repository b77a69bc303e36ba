package native_test

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"millrace/internal/ktag"
)

func taggedGap(p *kmsg.ProduceResponseTopicPartition) {
	p.ErrorCode = kerr.OutOfOrderSequenceNumber.Code
	ktag.SetExpectedSequence(&p.UnknownTags, 5)
}

func taggedEpoch(p *kmsg.ProduceResponseTopicPartition) {
	p.ErrorCode = kerr.InvalidProducerEpoch.Code
	ktag.SetCurrentEpoch(&p.UnknownTags, 4)
}

func taggedOffset(p *kmsg.ProduceResponseTopicPartition) {
	p.ErrorCode = kerr.InvalidUpdateVersion.Code
	ktag.SetActualOffset(&p.UnknownTags, 11)
}

func taggedDuplicate(p *kmsg.ProduceResponseTopicPartition) {
	ktag.SetDuplicate(&p.UnknownTags)
	ktag.SetAppendTime(&p.UnknownTags, 1767323045678)
}
