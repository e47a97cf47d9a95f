"""The paper's tables and figures by name; loads nothing, for the shell's help lists them."""

NAMES = {
    "table1": "mean AUC by share of labels, every method, with all labels as the ceiling (chest)",
    "table2": "AUC of each class at 20 % of the labels (chest)",
    "table3": "AUC, sensitivity and F1 at 20 % of the labels, every method, with the ceiling (lesions)",
    "table4": "low, medium or high information, with and without purification",
    "table5": "pseudo-labels by model, neighbours, random weight, MixUp, informative mixup",
    "supplement1": "2, 3 or 4 information sets: AUC and number of stages",
    "figure-k": "AUC over K, with and without purification",
    "figure-size": "size of the labelled set by stage, for low, medium and high information",
    "figure-balance": "how common each class is among high- and low-information samples and in the pool",
    "figure-examples": "selected images with their pseudo-labels, green where right, red where wrong",
    "departures": "each departure of the published code alone, and what choosing on the test part is worth",
    "trust": "how well model, neighbours and both rank unlabelled images of low, medium and high information",
    "beside": "each method's answers with what is known beside the image: the patient's data, the group's images",
    "calibration": "how far each method's probabilities are off, with the ceiling",
    "beyond": "what goes beyond the paper: each setting of acpl-plus alone, against acpl",
}
"""What ``acpl reproduce`` can make, with a line each; the last four are not in the paper."""
