// SPDX-License-Identifier: Apache-2.0
// berth einsum: plan, ask for exactly the planned bytes, load, contract, write, report.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "args.h"
#include "commands.h"
#include "einsum_work.h"
#include "job.h"

static const char synopsis[] = "berth einsum SPEC OPERAND.npy... [-o OUT.npy] [OPTION]...\n"
                               "       berth einsum --instance FILE.json [--path NAME] [--seed N] [--verify] [OPTION]...";
static const char details[] =
    "SPEC is numpy's einsum notation; a label is one Unicode character. Operands have one dtype: f32, f64, c64 or c128.\n"
    "Without --memory the job asks for exactly what its plan needs. An instance's operands are made from the seed.\n";

static berth_status no_memory(berth_error *err) {
  err->code = BERTH_RESOURCE_EXHAUSTED;
  err->reason = "host_exhausted";
  snprintf(err->message, sizeof err->message, "host_exhausted: no memory for the command's own lists");
  return err->code;
}

static int parse(int argc, char **argv, einsum_options *o, int *out_count) {
  const cli_option options[] = {
      {"o", CLI_TEXT, &o->output, "FILE", "write the result as a .npy file", 0, 0},
      {"device", CLI_TEXT, &o->device, "NAME", "device to run on (default cpu:0)", 0, 0},
      {"lanes", CLI_NUMBER, &o->lanes, "N", "CPUs to ask for (default: all of the device)", 1, 4096},
      {"memory", CLI_BYTES, &o->memory, "BYTES", "grant to ask for (default: what the plan needs)", 1, 0},
      {"deadline", CLI_SPAN, &o->deadline, "TIME", "end the attempt after this time", 0, 0},
      {"group", CLI_TEXT, &o->group, "NAME", "group to run in", 0, 0},
      {"objective", CLI_TEXT, &o->objective, "NAME", "what the search for an order minimizes: balanced, flops or size", 0, 0},
      {"plan", CLI_FLAG, &o->plan, NULL, "print the plan and do not run", 0, 0},
      {"report", CLI_FLAG, &o->report, NULL, "print the attempt's sealed report, too", 0, 0},
      {"json", CLI_FLAG, &o->json, NULL, "print one JSON object", 0, 0},
      {"instance", CLI_TEXT, &o->instance, "FILE", "contract a tensor-network instance", 0, 0},
      {"path", CLI_TEXT, &o->path, "NAME", "with --instance: opt_flops, opt_size or search (default opt_flops)", 0, 0},
      {"seed", CLI_NUMBER, &o->seed, "N", "with --instance: seed of the operands (default 1)", 0, UINT32_MAX},
      {"save-operands", CLI_TEXT, &o->save_operands, "DIR", "with --instance: write the operands as DIR/00000.npy...", 0, 0},
      {"verify", CLI_FLAG, &o->verify, NULL, "with --instance: evaluate again by another route and compare", 0, 0},
  };
  const cli_usage usage = {synopsis, details, options, sizeof options / sizeof *options, 0, -1};
  o->seed = 1;
  int code = cli_parse(&usage, argc, argv, out_count);
  if (code >= 0) return code;
  if (o->instance != NULL && *out_count > 0) return cli_usage_error("--instance takes its operands from the file; '%s' is left over", argv[1]);
  if (o->instance == NULL && *out_count < 2) return cli_usage_error("a specification and at least one operand are needed\nusage: %s", synopsis);
  if (o->instance == NULL && (o->path != NULL || o->verify || o->save_operands != NULL)) {
    return cli_usage_error("--path, --verify and --save-operands go with --instance");
  }
  if (o->objective != NULL && strcmp(o->objective, "balanced") != 0 && strcmp(o->objective, "flops") != 0 && strcmp(o->objective, "size") != 0) {
    return cli_usage_error("--objective '%s' is none of balanced, flops, size", o->objective);
  }
  return -1;
}

// ---- Planning ---------------------------------------------------------------------------------------------------------------------------------

static berth_status describe_files(einsum_work *work, berth_error *err) {
  work->headers = calloc(work->operand_count, sizeof *work->headers);
  if (work->headers == NULL) return no_memory(err);
  for (uint32_t i = 0; i < work->operand_count; i++) {
    berth_npy_header *header = &work->headers[i];
    header->struct_size = sizeof *header;
    berth_status status = berth_npy_peek(work->files[i], header, err);
    if (status != BERTH_OK) return status;
    if (i == 0) work->dtype = header->dtype;
    if (header->dtype != work->dtype) {
      err->code = BERTH_INVALID_ARGUMENT;
      err->reason = "dtype_mismatch";
      snprintf(err->message, sizeof err->message, "dtype_mismatch: %s with %s; nothing is promoted; convert one", berth_dtype_name(work->dtype),
               berth_dtype_name(header->dtype));
      return err->code;
    }
    work->described[i] = (berth_einsum_operand){header->rank, header->shape, header->strides};
  }
  return BERTH_OK;
}

static void describe_network(einsum_work *work) {
  for (uint32_t i = 0; i < work->operand_count; i++) {
    work->described[i] = (berth_einsum_operand){work->network.operands[i].rank, work->network.operands[i].shape, NULL};
  }
}

static berth_einsum_objective objective_of(const char *name) {
  if (name != NULL && strcmp(name, "flops") == 0) return BERTH_EINSUM_FLOPS;
  if (name != NULL && strcmp(name, "size") == 0) return BERTH_EINSUM_SIZE;
  return BERTH_EINSUM_BALANCED;
}

static berth_status make_plan(einsum_work *work, berth_error *err) {
  berth_einsum_options options = BERTH_EINSUM_OPTIONS_INIT;
  work->described = calloc(work->operand_count, sizeof *work->described);
  work->tensors = calloc(work->operand_count, sizeof *work->tensors);
  if (work->described == NULL || work->tensors == NULL) return no_memory(err);
  if (work->options.instance != NULL) {
    describe_network(work);
  } else {
    berth_status status = describe_files(work, err);
    if (status != BERTH_OK) return status;
  }
  options.charge_operands = true;
  options.objective = objective_of(work->options.objective);
  if (work->path != NULL) {
    options.path = work->path->positions;
    options.path_entries = work->path->entries;
  }
  // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the arrays belong to `work`, which its owner frees
  berth_status status = berth_einsum_plan_create(work->spec, work->operand_count, work->described, work->dtype, &options, &work->plan, err);
  if (status != BERTH_OK) return status;
  work->info = (berth_einsum_plan_info)BERTH_EINSUM_PLAN_INFO_INIT;
  return berth_einsum_plan_get_info(work->plan, &work->info, err);
}

/// Loads the instance and picks its path. Prints what is wrong; -1 to go on.
static int load_instance(einsum_work *work) {
  const char *name = work->options.path == NULL ? "opt_flops" : work->options.path;
  if (!cli_network_load(work->options.instance, &work->network)) return CLI_FAILED;
  work->spec = work->network.spec;
  work->dtype = work->network.dtype;
  work->operand_count = work->network.operand_count;
  if (strcmp(name, "search") == 0) return -1;
  work->path = cli_network_path(&work->network, name);
  if (work->path != NULL) return -1;
  fprintf(stderr, "berth: %s has no path '%s'; it has", work->network.name, name);
  for (uint32_t i = 0; i < work->network.path_count; i++) fprintf(stderr, " %s", work->network.paths[i].name);
  fprintf(stderr, "; or use --path search\n");
  return CLI_USAGE;
}

// ---- Running ----------------------------------------------------------------------------------------------------------------------------------

static berth_status make_operand(einsum_work *work, berth_exec *exec, uint32_t i, berth_error *err) {
  const cli_operand *operand = &work->network.operands[i];
  berth_status status = berth_tensor_create(exec, BERTH_F64, operand->rank, operand->shape, &work->tensors[i], err);
  if (status != BERTH_OK) return status;
  cli_network_fill(&work->network, i, work->options.seed, berth_tensor_data(work->tensors[i]));
  if (work->options.save_operands == NULL) return BERTH_OK;
  char file[4096];
  int length = snprintf(file, sizeof file, "%s/%05u.npy", work->options.save_operands, i);
  if (length < 0 || (size_t)length >= sizeof file) return no_memory(err);
  return berth_npy_write(exec, work->tensors[i], file, err);
}

static berth_status load_operands(einsum_work *work, berth_exec *exec, berth_error *err) {
  berth_status status = BERTH_OK;
  for (uint32_t i = 0; i < work->operand_count && status == BERTH_OK; i++) {
    status = work->options.instance != NULL ? make_operand(work, exec, i, err) : berth_npy_read(exec, work->files[i], &work->tensors[i], err);
  }
  return status;
}

typedef struct progress {
  int64_t started, shown;
  bool terminal;
} progress;

static void show_progress(void *arg, uint32_t done, uint32_t steps) {
  progress *p = arg;
  int64_t now = berth_now();
  if (!p->terminal || now - p->started < 500000000 || now - p->shown < 100000000) return;
  p->shown = now;
  fprintf(stderr, "\rstep %u of %u  %.0f s ", done, steps, (double)(now - p->started) / 1e9);
  fflush(stderr);
}

static berth_status contract(einsum_work *work, berth_exec *exec, berth_error *err) {
  berth_einsum_run_options options = BERTH_EINSUM_RUN_OPTIONS_INIT;
  progress p = {.started = berth_now(), .terminal = isatty(STDERR_FILENO) == 1};
  options.progress = show_progress;
  options.progress_arg = &p;
  berth_status status = berth_einsum_run(exec, work->plan, (const berth_tensor *const *)work->tensors, &options, &work->result, err);
  if (p.shown != 0) fprintf(stderr, "\r%40s\r", "");
  return status;
}

/// What has to be taken from the result before its execution ends.
static berth_status keep_result(einsum_work *work, berth_exec *exec, berth_error *err) {
  berth_tensor_info info = BERTH_TENSOR_INFO_INIT;
  einsum_take_values(work);
  if (work->options.verify) {
    berth_status status = berth_tensor_get_info(work->result, &info, err);
    if (status != BERTH_OK) return status;
    work->kept = malloc(info.bytes + 1);
    if (work->kept == NULL) return no_memory(err);
    memcpy(work->kept, info.data, info.bytes);
  }
  if (work->options.output == NULL) return BERTH_OK;
  return berth_npy_write(exec, work->result, work->options.output, err);
}

static void release_tensors(einsum_work *work) {
  berth_tensor_release(work->result);
  work->result = NULL;
  for (uint32_t i = 0; i < work->operand_count && work->tensors != NULL; i++) {
    berth_tensor_release(work->tensors[i]);
    work->tensors[i] = NULL;
  }
}

static void job_options(const einsum_work *work, cli_job_options *out) {
  const char *name = work->options.instance == NULL ? work->spec : work->network.name;
  *out = (cli_job_options){.device = work->options.device, .group = work->options.group, .lanes = work->options.lanes};
  out->deadline = work->options.deadline;
  if (strlen(name) <= 256 && name[strspn(name, " \t\r\n")] != '\0') out->query_id = name;
}

/// The whole attempt. The report's text, when asked for, comes back allocated.
static berth_status attempt(einsum_work *work, char **out_report, berth_error *err) {
  cli_job job;
  cli_job_options options;
  char plan_name[96];
  berth_report *report = NULL;
  job_options(work, &options);
  berth_status status = cli_job_begin(&job, &options, err);
  if (status == BERTH_OK) status = make_plan(work, err);
  if (status == BERTH_OK) {
    work->asked_bytes = work->options.memory == 0 ? work->info.peak_bytes : work->options.memory;
    snprintf(plan_name, sizeof plan_name, "einsum, %u steps, %.31s", work->info.steps, work->path == NULL ? "searched" : work->path->name);
    status = cli_job_admit(&job, work->asked_bytes, plan_name, err);
  }
  snprintf(work->device, sizeof work->device, "%s", job.device);
  work->lanes = job.lanes;
  if (status == BERTH_OK) status = load_operands(work, job.exec, err);
  if (status == BERTH_OK) status = contract(work, job.exec, err);
  if (status == BERTH_OK) status = keep_result(work, job.exec, err);
  release_tensors(work);
  work->report = (berth_report_info)BERTH_REPORT_INFO_INIT;
  cli_job_end(&job, status, err, &work->report, &report);
  if (work->options.report && report != NULL) {
    size_t length = berth_report_json(report, NULL, 0);
    *out_report = malloc(length + 1);
    if (*out_report != NULL) berth_report_json(report, *out_report, length + 1);
  }
  berth_report_release(report);
  return status;
}

/// The path to verify along: another one than was used, where there is one.
static const cli_path *other_path(const einsum_work *work) {
  for (uint32_t i = 0; i < work->network.path_count; i++) {
    if (&work->network.paths[i] != work->path) return &work->network.paths[i];
  }
  return work->path;
}

static int verify(einsum_work *work) {
  cli_job_options options;
  const cli_path *other = other_path(work);
  if (other == NULL) {
    fprintf(stderr, "berth: %s has no path to verify along\n", work->network.name);
    return CLI_FAILED;
  }
  job_options(work, &options);
  return cli_verify(&work->network, other, work->options.seed, work->kept, &options, &work->verdict);
}

static int run(einsum_work *work) {
  berth_error err = BERTH_ERROR_INIT;
  char *report = NULL;
  int code = CLI_DONE;
  if (work->options.plan) {
    if (make_plan(work, &err) != BERTH_OK) return cli_error(&err);
    einsum_print_plan(work);
    return CLI_DONE;
  }
  if (attempt(work, &report, &err) != BERTH_OK) {
    code = cli_error(&err);
    if (report != NULL) printf("%s\n", report);
  } else if (work->options.verify) {
    code = verify(work);
  }
  if (code == CLI_DONE) {
    einsum_print_result(work, report);
    if (work->options.verify && !work->verdict.equal) code = CLI_FAILED;
  }
  free(report);
  return code;
}

static void drop(einsum_work *work) {
  berth_einsum_plan_release(work->plan);
  cli_network_free(&work->network);
  free(work->headers);
  free(work->described);
  free(work->tensors);
  free(work->kept);
}

int cli_einsum(int argc, char **argv) {
  einsum_work work;
  int count = 0;
  memset(&work, 0, sizeof work);
  int code = parse(argc, argv, &work.options, &count);
  if (code >= 0) return code;
  if (work.options.instance != NULL) {
    code = load_instance(&work);
  } else {
    work.spec = argv[1];
    work.files = argv + 2;
    work.operand_count = (uint32_t)count - 1;
  }
  if (code < 0) code = run(&work);
  drop(&work);
  return code;
}
