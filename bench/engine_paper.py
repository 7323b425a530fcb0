"""What the text of the CAGE paper (VLDB, "Containerized user-defined functions") says, as ratios:
absolute seconds of another machine are not comparable. Its figures show more, without numbers.
"""

# Of the time of the native function. Section 5.2 and figure 4: scoring of 10 million rows.
TRANSPORTS = {"flight": 1.1, "numpy": 1.3, "parquet": 1.6, "mlflow": 2.4, "json": 3.0}
# The names that the paper has for them.
NAMES = {
    "flight": "Arrow Flight",
    "numpy": "Sockets",
    "parquet": "Parquet",
    "mlflow": "MLflow",
    "json": "Web Server",
}

# Section 4 and figure 3: local containers by Flight, for both functions and all sizes; and remote
# functions by JSON, the least and the most.
LOCAL = 1.1
REMOTE = {"data-intensive": (2.0, 3.2), "compute-intensive": (3.8, 4.4)}

# Section 5.2: a group-by that trains models, by Flight and by JSON; a self-join by Flight.
GROUPS, GROUPS_JSON, JOIN = 1829 / 910, 8.0, 1.1

# Section 5.3.2: the cold start of the Parquet container against the warm one, at 10 million rows
# (1.7 s of 23.1 s) and at 100 million (2.2 s of 214 s); and MLflow's at 10 million.
COLD = {10_000_000: 1.07, 100_000_000: 1.01}
COLD_MLFLOW = 1.2

# Table 2: size on disk in MB, RSS in KB, seconds until the program is ready.
TABLE_2 = {
    "parquet": (490, 67_248, 0.49),
    "numpy": (352, 47_489, 0.07),
    "flight": (516, 70_832, 0.10),
    "json": (1_580, 121_831, 3.07),
    "mlflow": (1_600, 201_994, 7.02),
}

# Section 5.4.1 and figure 8: building the image again with another model against building it (0.6
# of 38 s on a slow disk, 0.2 of 31 s on a fast one; the text rounds them to 1.5 and 0.01 %).
INCREMENTAL = {"slow disk": 0.6 / 38, "fast disk": 0.2 / 31}
