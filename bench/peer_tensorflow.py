"""TensorFlow's side of the suite: an mlp that learns the digits under ParameterServerStrategy with
one server and two workers, each of which is a process.

  peer_tensorflow.py --hidden 1024+1024+1024 --batch 64 --steps 300 --per-call 5 --jit
      starts the server and the workers on ports of this machine, and coordinates them

It runs in a virtual environment of its own (`make bench` names the commands that make it) and
prints one JSON object. The server and the workers end with the coordinator, in whatever way that
ends.
"""

import argparse
import faulthandler
import gzip
import json
import os
import pathlib
import socket
import subprocess
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow reads it when it is imported.

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

DIGITS = pathlib.Path(__file__).resolve().parent.parent / "data/digits.csv.gz"
TRAINING_IMAGES = 1438  # As many as Trireme keeps for training.
PIXELS, CLASSES = 64, 10
LEARNING_RATE = 0.1
WARM_UP_CALLS = 8
LIMIT_S = 150
WORKERS = 2
# One thread computes. With a pool of one for the operations, TensorFlow 2.21 hangs: operations wait
# in it for tensors of other processes.
COMPUTING_THREADS, OPERATION_THREADS = 1, 2


def free_ports(count):
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def set_task(environment, cluster, job, index):
    environment["TF_CONFIG"] = json.dumps({"cluster": cluster,
                                           "task": {"type": job, "index": index}})


def resolver():
    return tf.distribute.cluster_resolver.TFConfigClusterResolver()


def serve():
    """Runs the server or worker of TF_CONFIG until the coordinator is gone."""
    task = resolver()
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=COMPUTING_THREADS,
                                      inter_op_parallelism_threads=OPERATION_THREADS)
    server = tf.distribute.Server(task.cluster_spec(), job_name=task.task_type,
                                  task_index=task.task_id, protocol="grpc", config=config)
    sys.stdin.read()  # The pipe closes when the coordinator ends.
    del server
    os._exit(0)


def start_tasks(arguments):
    """Starts the server and the workers, and makes this process the coordinator."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2 + WORKERS)]
    cluster = {"chief": addresses[:1], "ps": addresses[1:2], "worker": addresses[2:]}
    tasks = []
    for job, index in [("ps", 0)] + [("worker", index) for index in range(WORKERS)]:
        environment = dict(os.environ)
        set_task(environment, cluster, job, index)
        tasks.append(subprocess.Popen([sys.executable, __file__, *arguments, "--serve"],
                                      env=environment, stdin=subprocess.PIPE))
    set_task(os.environ, cluster, "chief", 0)
    tf.config.threading.set_intra_op_parallelism_threads(COMPUTING_THREADS)
    tf.config.threading.set_inter_op_parallelism_threads(OPERATION_THREADS)
    return tasks


def training_images():
    with gzip.open(DIGITS, "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    chosen = table[np.random.default_rng(1).permutation(len(table))[:TRAINING_IMAGES]]
    return chosen[:, :PIXELS] / 16, chosen[:, PIXELS].astype(np.int64)


def batches(images, labels, size):
    """Shuffles numbers of images and gathers whole batches, which is faster than single images."""
    images, labels = tf.constant(images), tf.constant(labels)
    numbers = tf.data.Dataset.range(TRAINING_IMAGES).shuffle(TRAINING_IMAGES).repeat()
    return numbers.batch(size, drop_remainder=True).map(
        lambda chosen: (tf.gather(images, chosen), tf.gather(labels, chosen))).prefetch(2)


def initial_parameters(hidden):
    """Weights and biases, layer by layer, drawn as torch::nn::Linear draws them."""
    chance = np.random.default_rng(1)
    widths = [PIXELS, *hidden, CLASSES]
    for width_in, width_out in zip(widths, widths[1:]):
        for shape in ((width_in, width_out), (width_out,)):
            bound = width_in ** -0.5
            yield chance.uniform(-bound, bound, shape).astype(np.float32)


def loss_of(parameters, images, labels):
    x = images
    for weight, bias in zip(parameters[:-2:2], parameters[1:-2:2]):
        x = tf.nn.relu(tf.nn.bias_add(tf.matmul(x, weight), bias))
    logits = tf.nn.bias_add(tf.matmul(x, parameters[-2]), parameters[-1])
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))


def loss_and_gradients(parameters, images, labels):
    with tf.GradientTape() as tape:
        tape.watch(parameters)
        loss = loss_of(parameters, images, labels)
    return loss, tape.gradient(loss, parameters)


def train(hidden, batch, steps, per_call, jit):
    """Returns the figures of the steps after the warm-up."""
    strategy = tf.distribute.ParameterServerStrategy(resolver())
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        variables = [tf.Variable(value) for value in initial_parameters(hidden)]
    images, labels = training_images()
    data = iter(coordinator.create_per_worker_dataset(lambda: batches(images, labels, batch)))
    compute = tf.function(loss_and_gradients, jit_compile=jit)

    @tf.function
    def several_steps(iterator):
        for _ in range(per_call):
            # One read of each variable; the gradient goes to the server, which updates.
            parameters = [tf.convert_to_tensor(variable) for variable in variables]
            loss, gradients = compute(parameters, *next(iterator))
            for variable, gradient in zip(variables, gradients):
                tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=LEARNING_RATE,
                                                        delta=gradient)
        return loss

    def run(calls):
        """Schedules all calls ahead, so that no worker waits for the coordinator. Returns the loss
        of the last."""
        losses = [coordinator.schedule(several_steps, args=(data,)) for _ in range(calls)]
        coordinator.join()
        return float(losses[-1].fetch())

    untrained = float(loss_of(list(initial_parameters(hidden)), images, labels))
    run(WARM_UP_CALLS)
    calls = -(-steps // per_call)
    start = time.perf_counter()
    loss = run(calls)
    seconds = time.perf_counter() - start
    if not loss < untrained:
        raise RuntimeError(f"the loss did not fall: {untrained} before and {loss} after")
    return {"steps_per_second": calls * per_call / seconds, "loss": loss,
            "version": tf.__version__}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=lambda text: [int(size) for size in text.split("+")],
                        required=True, help="the hidden layers, such as 1024+1024+1024")
    parser.add_argument("--batch", type=int, required=True, help="samples of a worker's step")
    parser.add_argument("--steps", type=int, required=True, help="steps of all workers together")
    parser.add_argument("--per-call", type=int, default=1,
                        help="steps that a worker takes in one call of the coordinator")
    parser.add_argument("--jit", action="store_true", help="XLA compiles the computation")
    parser.add_argument("--serve", action="store_true",
                        help="be the server or worker of TF_CONFIG")
    arguments = parser.parse_args()
    if arguments.serve:
        return serve()
    faulthandler.dump_traceback_later(LIMIT_S, exit=True)
    tasks = start_tasks(sys.argv[1:])
    try:
        figures = train(arguments.hidden, arguments.batch, arguments.steps, arguments.per_call,
                        arguments.jit)
        print(json.dumps(figures), flush=True)
    finally:
        for task in tasks:
            task.kill()
            task.wait()
    os._exit(0)  # The coordinator's threads would report the loss of the tasks.


if __name__ == "__main__":
    main()
