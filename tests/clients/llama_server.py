"""llama.cpp's own HTTP server, on one thread: llama_server.py MODEL PORT"""

import signal
import sys

import xllamacpp

params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.hostnames = ["127.0.0.1"]
params.port = int(sys.argv[2])
params.n_ctx = 1024
params.n_parallel = 1
params.warmup = False
# ggml's threads spin while they wait for each other: on a busy machine two are slower than one.
params.cpuparams.n_threads = 1
params.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(params)
signal.pause()
