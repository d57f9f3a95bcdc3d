package spoe

import "bytes"

const version = "2.0"

// hello is HAProxy's first message.
type hello struct {
	version, sized bool
	maxFrame       uint64
	check          bool // it only wants to know whether this is an agent
}

// readHello reads the first frame of a connection.
func readHello(b []byte) (h hello, err error) {
	f, err := readFrame(b)
	switch {
	case err != nil:
		return h, err
	case f.kind != haproxyHello:
		return h, errHello
	case f.flags != flagFinal:
		return h, statusFragmented
	}
	supported := false
	for len(f.payload) > 0 {
		name, v, err := f.payload.pair()
		if err != nil {
			return h, err
		}
		switch string(name) {
		case "supported-versions":
			h.version = v.kind == typeString
			for one := range bytes.SplitSeq(v.text, []byte(",")) {
				supported = supported || string(bytes.TrimSpace(one)) == version
			}
		case "max-frame-size":
			h.sized, h.maxFrame = v.kind == typeUint32, v.number
		case "healthcheck":
			h.check = v.kind == typeBool && v.number == 1
		}
	}
	switch {
	case !h.version:
		return h, statusNoVersion
	case !supported:
		return h, statusVersion
	case !h.sized:
		return h, statusNoSize
	case h.maxFrame < minFrame:
		return h, statusSize
	}
	return h, nil
}

// appendHello answers. HAProxy may pipeline requests, because it forgets requests that wait for a
// connection that carries one at a time: the answer to one does not make it send the next.
func appendHello(b []byte, maxFrame int) []byte {
	b = begin(b, agentHello, 0, 0)
	b = appendString(appendText(b, "version"), version)
	b = appendUint32(appendText(b, "max-frame-size"), uint32(maxFrame))
	b = appendString(appendText(b, "capabilities"), "pipelining")
	return finish(b)
}

func appendDisconnect(b []byte, s status) []byte {
	b = begin(b, agentDisconnect, 0, 0)
	b = appendUint32(appendText(b, "status-code"), uint32(s))
	b = appendString(appendText(b, "message"), s.Error())
	return finish(b)
}
