/* tests/reference/allreduce_openmpi.c: MPI_Allreduce() of f32 sums, to be held against `weir bench allreduce`.
 *
 * Needs Debian's libopenmpi-dev and openmpi-bin; no part of weir does. Over shared memory and over TCP, two ranks and
 * four (as root with --allow-run-as-root; --oversubscribe where there are fewer cores than ranks):
 *
 *     mpicc -O3 -march=native -o /tmp/allreduce tests/reference/allreduce_openmpi.c
 *     mpirun -n 2 --mca btl vader,self /tmp/allreduce
 *     mpirun -n 2 --mca btl tcp,self --mca btl_tcp_if_include lo /tmp/allreduce
 *     mpirun -n 4 --oversubscribe --mca btl vader,self /tmp/allreduce
 *     mpirun -n 4 --oversubscribe --mca btl tcp,self --mca btl_tcp_if_include lo /tmp/allreduce
 *
 * Prints a line per size: bytes, and microseconds per call, the median of nine rounds of calls back to back. A round's
 * time is that of the slowest rank. With arguments it is one size, and so many rounds: allreduce_beside.py asks for them.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define ROUNDS_MAX 9
#define ROUND_SECONDS 0.15

static const int sizes[] = {4, 64 << 10, 1 << 20, 16 << 20, 64 << 20};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double time_calls(const float *in, float *out, int count, int calls)
{
    double longest = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (int i = 0; i < calls; i++)
        MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    double seconds = MPI_Wtime() - start;
    MPI_Allreduce(&seconds, &longest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return longest / calls;
}

static double time_size(int bytes, int rounds_count)
{
    int count = bytes / 4;
    double rounds[ROUNDS_MAX];
    float *in = malloc((size_t)bytes), *out = malloc((size_t)bytes);
    if (!in || !out)
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (int i = 0; i < count; i++)
        in[i] = (float)(1 + i % 61);
    time_calls(in, out, count, 2);
    double fit = ROUND_SECONDS / time_calls(in, out, count, 4);
    int calls = fit < 4 ? 4 : fit > 100000 ? 100000 : (int)fit;
    for (int r = 0; r < rounds_count; r++)
        rounds[r] = time_calls(in, out, count, calls);
    qsort(rounds, (size_t)rounds_count, sizeof *rounds, by_value);
    free(in);
    free(out);
    return rounds[rounds_count / 2];
}

static void report_size(int rank, int ranks, int bytes, int rounds_count)
{
    double seconds = time_size(bytes, rounds_count);
    if (rank == 0)
        printf("%d ranks %10d bytes %12.3f us\n", ranks, bytes, 1e6 * seconds);
}

int main(int argc, char **argv)
{
    int rank, ranks, rounds = argc > 2 ? atoi(argv[2]) : ROUNDS_MAX;
    rounds = rounds < 1 ? 1 : rounds > ROUNDS_MAX ? ROUNDS_MAX : rounds;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc > 1)
        report_size(rank, ranks, atoi(argv[1]), rounds);
    for (size_t s = 0; argc < 2 && s < sizeof sizes / sizeof *sizes; s++)
        report_size(rank, ranks, sizes[s], rounds);
    MPI_Finalize();
    return 0;
}
