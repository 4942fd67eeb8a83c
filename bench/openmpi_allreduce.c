/* Measures MPI_Allreduce of ordinary float buffers, with a barrier before each repetition.
 * Usage, under mpirun: openmpi_allreduce BYTES STEPS
 * Rank 0 prints one JSON object with the median and the minimum of its times, in seconds. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { kWarmUp = 5 };

static int compare(const void *left, const void *right) {
  const double a = *(const double *)left, b = *(const double *)right;
  return (a > b) - (a < b);
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  const int elements = argc == 3 ? atoi(argv[1]) / (int)sizeof(float) : 0;
  const int steps = argc == 3 ? atoi(argv[2]) : 0;
  float *values = elements > 0 ? malloc((size_t)elements * sizeof(float)) : NULL;
  double *seconds = steps > 0 ? malloc((size_t)steps * sizeof(double)) : NULL;
  if (!values || !seconds) {
    fprintf(stderr, "usage: openmpi_allreduce BYTES STEPS (at least 4 bytes and 1 step)\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
    return 2;
  }
  /* This takes the page faults before the measurement. Sums of zeros never overflow. */
  for (int i = 0; i < elements; ++i) values[i] = 0;

  for (int i = -kWarmUp; i < steps; ++i) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    MPI_Allreduce(MPI_IN_PLACE, values, elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (i >= 0) seconds[i] = MPI_Wtime() - start;
  }

  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) {
    qsort(seconds, (size_t)steps, sizeof(double), compare);
    const double median = (seconds[(steps - 1) / 2] + seconds[steps / 2]) / 2;
    printf("{\"median_s\": %.9f, \"min_s\": %.9f}\n", median, seconds[0]);
  }
  free(values);
  free(seconds);
  MPI_Finalize();
  return 0;
}
